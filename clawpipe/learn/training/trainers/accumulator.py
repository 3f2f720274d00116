"""Metrics of one optimizer step, gathered over its micro-batches, and over all processes."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from clawpipe.learn.training.losses.batch import Part


class _Part(NamedTuple):
    """The metrics of one micro-batch."""

    metrics: dict[str, Any]
    number: int
    trained: int
    tree: int


class Accumulator:
    """Collects metrics: `*_min` and `*_max` are extremes, the others weighted means; times are wall seconds."""

    def __init__(self) -> None:
        self.nonfinite = 0  # micro-batches that contributed nothing, and optimizer steps not taken
        self._parts: list[_Part] = []
        self._since = time.perf_counter()

    def add(self, parts: Sequence[Part], trained: int, tree_tokens: int) -> None:
        """Add a micro-batch: its metrics, and the numbers of tokens that it trained and computed."""
        first, *others = parts
        self._parts.append(_Part(first.metrics, first.number, trained, tree_tokens))
        self._parts += [_Part(part.metrics, part.number, 0, 0) for part in others]

    def drain(self, gather: Callable[[list[Any]], list[Any]] = list) -> dict[str, float]:
        """Return the optimizer step's metrics, and start the next step. `gather` joins the lists of all processes."""
        known = [part._replace(metrics={name: float(value) for name, value in part.metrics.items()}) for part in self._parts]
        parts, nonfinite = [_Part(*part) for part in gather(known)], sum(gather([self.nonfinite]))
        trained, seconds = sum(part.trained for part in parts), time.perf_counter() - self._since
        metrics = {name: _reduce(name, parts) for name in sorted({name for part in parts for name in part.metrics})}
        metrics |= {"nonfinite": nonfinite, "trained_tokens": trained, "tree_tokens": sum(part.tree for part in parts)}
        metrics |= {"seconds": seconds, "tokens_per_second": trained / seconds}
        self.__init__()
        return metrics


def _reduce(name: str, parts: list[_Part]) -> float:
    values = [(part.metrics[name], part.number) for part in parts if name in part.metrics]
    if name.endswith("_min"):
        return min(value for value, _ in values)
    if name.endswith("_max"):
        return max(value for value, _ in values)
    return sum(value * count for value, count in values) / sum(count for _, count in values)
