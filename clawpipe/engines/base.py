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


@dataclass(frozen=True)
class Sampling:
    """temperature 0 is greedy; `max_new_tokens` is a turn's limit."""

    temperature: float
    max_new_tokens: int
    stop_id: int


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
