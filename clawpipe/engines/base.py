"""What every engine gives: token ids in, token ids and their log-probs out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol


class Completion(NamedTuple):
    """One sampled continuation.

    ids: sampled tokens, the end-of-turn token included when the model produced it.
    logprobs: natural log-prob of each, at the sampling temperature over the full vocabulary (temperature 1 when greedy).
    finish_reason: "stop" (ended by the end-of-turn token) or "length".
    """

    ids: list[int]
    logprobs: list[float]
    finish_reason: str


class Likelihood(NamedTuple):
    """How likely the model itself, at temperature 1 and over the full vocabulary, finds a token and its likeliest rivals.

    logprob: natural log-prob of the sampled token.
    top: (token, log-prob) of the likeliest tokens, best first; the sampled one may be among them.
    """

    logprob: float
    top: list[tuple[int, float]]


@dataclass(frozen=True)
class Sampling:
    """temperature 0 is greedy; `max_new_tokens` is a turn's limit.

    `top_p` below 1 draws from the nucleus: the fewest likeliest tokens that hold this much of the tempered distribution. Recorded
    log-probs stay those over the full vocabulary, so tokens that are to be trained on are sampled with 1.
    """

    temperature: float
    max_new_tokens: int
    stop_id: int
    top_p: float = 1.0


class Conversations(Protocol):
    """A batch of token histories that grow side by side; what was computed for a history is never computed again."""

    def extend(self, tokens: dict[int, Sequence[int]]) -> None:
        """Append tokens (of the environment) to some rows."""
        ...

    def sample(self, seeds: dict[int, int], sampling: Sampling) -> dict[int, Completion]:
        """Sample one turn for each row in `seeds`, and append it to the row."""
        ...


class Engine(Protocol):
    def begin(self, prompts: Sequence[Sequence[int]]) -> Conversations: ...
    def score(self, ids: Sequence[int], start: int, temperature: float = 1.0) -> list[float]: ...
