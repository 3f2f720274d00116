"""Conversations with a server that finds what it has computed of a history by itself (prefix caching)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from clawpipe.model.engines.base import Completion, Sampling

Ask = Callable[[Sequence[tuple[Sequence[int], int]], Sampling], list[Completion]]


class Histories:
    """Rows of one batch, each with its whole history.

    Args:
        ask: samples a turn for each of some histories, each with its seed.
        prompts: with which the rows begin.
    """

    def __init__(self, ask: Ask, prompts: Sequence[Sequence[int]]) -> None:
        self._ask, self._histories = ask, [list(prompt) for prompt in prompts]

    def extend(self, tokens: dict[int, Sequence[int]]) -> None:
        for row, ids in tokens.items():
            self._histories[row].extend(ids)

    def sample(self, seeds: dict[int, int], sampling: Sampling) -> dict[int, Completion]:
        rows = sorted(seeds)
        turns = self._ask([(self._histories[row], seeds[row]) for row in rows], sampling)
        self.extend({row: turn.ids for row, turn in zip(rows, turns, strict=True)})
        return dict(zip(rows, turns, strict=True))
