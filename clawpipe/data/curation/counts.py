"""Counts of the rows that each curation step keeps and filters, and figures of the batch; both add up over batches."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from pydantic import BaseModel, ConfigDict

from clawpipe.core.config.block import renamed
from clawpipe.core.store.refs import DatasetRef

Figures = Mapping[str, int | float | None]


class Count(BaseModel):
    """The rows that one step received, kept and filtered. `unit` is "trajectories" or "pairs"."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    step: str
    unit: str
    rows_in: int
    rows_out: int
    filtered: dict[str, int] = renamed("set_aside", "filtered")


class Decided(BaseModel):
    """The result of curation. Figures are sums, so that those of several batches add up. `left_out` names captured rows and why.
    `slices` holds the rows of each slice and its share of the loss; empty where slices are not weighed.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    output: DatasetRef
    counts: tuple[Count, ...]
    figures: dict[str, int | float | None]
    left_out: DatasetRef | None = None
    slices: dict[str, dict[str, int | float]] = {}


def together(counts: Sequence[Count]) -> Count:
    """Add up the counts of one step over several batches."""
    filtered: dict[str, int] = {}
    for reason, rows in (pair for count in counts for pair in count.filtered.items()):
        filtered[reason] = filtered.get(reason, 0) + rows
    rows_in, rows_out = sum(count.rows_in for count in counts), sum(count.rows_out for count in counts)
    totals = {"rows_in": rows_in, "rows_out": rows_out, "filtered": dict(sorted(filtered.items()))}
    return counts[0].model_copy(update=totals)


def summed(figures: Sequence[Figures]) -> dict[str, int | float]:
    """Add up the figures of all batches in order; a figure that no batch has is absent."""
    sums: dict[str, int | float] = {}
    for name in figures[0]:
        values = [value for value in (one[name] for one in figures) if value is not None]
        if values:
            sums[name] = sum(values)
    return sums


def with_means(sums: Mapping[str, int | float]) -> dict[str, int | float]:
    """Replace `<what>_sum` and `<what>_count` by a mean, if the count is not 0."""
    means = {"reward": "reward_mean", "success": "success_rate"}
    rates = {named: sums[f"{what}_sum"] / sums[f"{what}_count"] for what, named in means.items() if sums.get(f"{what}_count")}
    rates = {named: rate for named, rate in rates.items() if math.isfinite(rate)}
    return rates | {name: value for name, value in sums.items() if not name.startswith(tuple(means))}
