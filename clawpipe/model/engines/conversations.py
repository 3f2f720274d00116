"""Sample turns of a batch of conversations token by token; subclasses compute the logits."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Generator, Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from clawpipe.model.engines.base import Completion, Likelihood, Sampling


class _Step(NamedTuple):
    """One sampled token: its row, its log-prob at the sampling temperature, why it ends the turn ("": it does not), logits (V,)."""

    row: int
    token: int
    logprob: float
    last: str
    logits: Tensor


class EmbeddedConversations(ABC):
    """Rows of one batch. See `clawpipe.model.engines.base.Conversations`. A turn also ends where its row has `context` tokens."""

    def __init__(self, context: int, prompts: Sequence[Sequence[int]]) -> None:
        self._context = context
        self._lengths = [len(prompt) for prompt in prompts]

    def extend(self, tokens: dict[int, Sequence[int]]) -> None:
        for row, ids in tokens.items():
            self._lengths[row] += len(ids)
            self._append(row, ids)

    @abstractmethod
    def _logits(self, active: list[int]) -> Tensor:
        """Return float32 logits (len(active), V) of the token that follows each active row."""

    @abstractmethod
    def _begin_turn(self) -> None: ...

    @abstractmethod
    def _append(self, row: int, ids: Sequence[int]) -> None:
        """Append tokens, sampled or given."""

    @torch.inference_mode()
    def sample(self, seeds: dict[int, int], sampling: Sampling) -> dict[int, Completion]:
        turns: dict[int, Completion] = {}
        for row, token, logprob, last, _ in self._steps(seeds, sampling):
            ids, logprobs, _ = turns.setdefault(row, Completion([], [], "length"))
            ids.append(token)
            logprobs.append(logprob)
            if last:
                turns[row] = Completion(ids, logprobs, last)
        return turns

    @torch.inference_mode()
    def stream(self, row: int, seed: int, sampling: Sampling, top: int = 0) -> Generator[tuple[int, Likelihood], None, None]:
        """Sample the turn that `sample` gives for one row; yield each token with the log-probs of it and of the `top` likeliest."""
        for step in self._steps({row: seed}, sampling):
            logprobs = step.logits.log_softmax(-1)
            values, tokens = logprobs.topk(top)
            yield step.token, Likelihood(logprobs[step.token].item(), list(zip(tokens.tolist(), values.tolist(), strict=True)))

    def _steps(self, seeds: dict[int, int], sampling: Sampling) -> Iterator[_Step]:
        """Sample token by token until every row's turn has ended."""
        draws = {row: random.Random(seed) for row, seed in seeds.items()}
        active = sorted(seeds)
        most = {row: min(sampling.max_new_tokens, self._context - self._lengths[row]) for row in active}
        self._begin_turn()
        for step in range(1, sampling.max_new_tokens + 1):
            logits = self._logits(active)
            tokens, logprobs = _sample(logits, [draws[row].random() for row in active], sampling)
            going = []
            for row, token, logprob, scores in zip(active, tokens, logprobs, logits, strict=True):
                self.extend({row: [token]})
                reason = "stop" if token in sampling.stop_ids else "length" if step >= most[row] else ""
                going += [] if reason else [row]
                yield _Step(row, token, logprob, reason, scores)
            active = going
            if not active:
                return


def _sample(logits: Tensor, draws: list[float], sampling: Sampling) -> tuple[list[int], list[float]]:
    """Sample one token per row from logits (N, V) by inverse transform sampling; return the tokens and their log-probs."""
    temperature = sampling.temperature
    logprobs = (logits / temperature if temperature else logits).log_softmax(-1)
    if temperature:
        mass = _nucleus(logprobs.exp().double(), sampling.top_p).cumsum(-1)
        target = torch.tensor(draws, dtype=torch.double, device=mass.device)[:, None] * mass[:, -1:]
        tokens = torch.searchsorted(mass, target, right=True).clamp_(max=mass.shape[-1] - 1)
    else:
        tokens = logprobs.argmax(-1, keepdim=True)
    return tokens.squeeze(-1).tolist(), logprobs.gather(-1, tokens).squeeze(-1).tolist()


def _nucleus(probabilities: Tensor, top_p: float) -> Tensor:
    """Return probabilities (N, V), 0 outside of the fewest likeliest tokens that together reach `top_p` (Holtzman et al. 2020)."""
    if top_p >= 1:
        return probabilities
    ranked, order = probabilities.sort(dim=-1, descending=True, stable=True)
    outside = ranked.cumsum(-1) - ranked >= top_p  # what is likelier holds enough already
    return probabilities.masked_fill(outside.scatter(-1, order, outside), 0.0)
