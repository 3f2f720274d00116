"""Metrics of one optimiser update, gathered over its micro-batches."""

from __future__ import annotations

import time

from torch import Tensor


class Meter:
    """Extremes by name (`*_min`, `*_max`), means weighted by trained tokens; times are wall seconds."""

    def __init__(self) -> None:
        self.nonfinite = 0  # micro-batches that contributed nothing, and updates not made
        self._parts: list[tuple[dict[str, Tensor], int]] = []
        self._tree_tokens = 0
        self._since = time.perf_counter()

    def add(self, metrics: dict[str, Tensor], trained: int, tree_tokens: int) -> None:
        self._parts.append((metrics, trained))
        self._tree_tokens += tree_tokens

    def drain(self) -> dict[str, float]:
        """The update's metrics; starts the next one."""
        trained = sum(count for _, count in self._parts)
        seconds = time.perf_counter() - self._since
        facts = {name: self._reduce(name) for name in sorted({name for metrics, _ in self._parts for name in metrics})}
        facts |= {"nonfinite": self.nonfinite, "trained_tokens": trained, "tree_tokens": self._tree_tokens}
        facts |= {"seconds": seconds, "tokens_per_second": trained / seconds}
        self.__init__()
        return facts

    def _reduce(self, name: str) -> float:
        values = [(float(metrics[name]), count) for metrics, count in self._parts if name in metrics]
        if name.endswith("_min"):
            return min(value for value, _ in values)
        if name.endswith("_max"):
            return max(value for value, _ in values)
        return sum(value * count for value, count in values) / sum(count for _, count in values)
