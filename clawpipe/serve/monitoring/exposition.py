"""The figures of a home's nights in Prometheus' text format. A figure that is not known is absent, never 0.

Names and units follow https://prometheus.io/docs/practices/naming/: times are timestamps, so that ages are computed when asked.
"""

from __future__ import annotations

import datetime
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from clawpipe.core.store.home import Home
from clawpipe.errors import ClawpipeError
from clawpipe.learn.evaluation.verdict.verdict import Decision
from clawpipe.record.nights.conclude import count_evidence_in
from clawpipe.record.nights.status import NightStatus
from clawpipe.record.registry.promotions import history
from clawpipe.record.registry.tracking import Tracking
from clawpipe.record.reporting.latest import Latest, latest_nights, prices_of
from clawpipe.serve.monitoring.usage import by_stage, price

Waiting = Callable[[str], Mapping[str, int]]  # a model's waiting rows by dataset
FIGURES = {  # name, labels besides the model, meaning
    "last_success_timestamp_seconds": ((), "When a run last ended well: with a verdict, or because nothing was new."),
    "last_verdict_timestamp_seconds": ((), "When the last night with a verdict ended."),
    "failures": ((), "Nights that an error ended since the last verdict."),
    "verdict": (("verdict",), "1 for the last verdict, 0 for the others."),
    "champion_timestamp_seconds": (("version",), "When the version in service was first promoted."),
    "heldout_success_ratio": (("role", "measure"), "Held-out success in the last night with a verdict, from 0 to 1."),
    "heldout_success_low_ratio": (("role", "measure"), "Lower end of its interval."),
    "heldout_success_high_ratio": (("role", "measure"), "Upper end of its interval."),
    "heldout_items": (("role", "measure"), "Held-out items that were answered."),
    "evidence_left_items": ((), "Held-out identities that no night has looked at."),
    "evidence_left_nights": ((), "Nights for which they suffice."),
    "waiting_rows": (("dataset",), "Ingested rows that no night with a verdict has used."),
    "duration_seconds": ((), "Time that the last night with a verdict took, over all its runs."),
    "stage_duration_seconds": (("stage",), "Wall time of a stage, summed over its rounds and models."),
    "stage_tokens": (("stage", "kind"), "Tokens that a stage sampled, or trained on."),
    "stage_accelerator_seconds": (("stage",), "Time for which a stage occupied accelerators, summed over them."),
    "stage_cost": (("stage", "currency"), "Price of a stage by metrics.prices."),
}
HOME_BYTES = "clawpipe_night_home_bytes"


def exposition(home: Home, waiting: Waiting) -> bytes:
    """Return all figures of a home in Prometheus' text format, version 0.0.4."""
    registry = CollectorRegistry()
    registry.register(_Figures(home, waiting))
    return generate_latest(registry)


@dataclass(frozen=True)
class _Figures(Collector):
    """All figures, read when they are collected."""

    home: Home
    waiting: Waiting

    def describe(self) -> Iterable[Metric]:
        return ()

    def collect(self) -> Iterator[Metric]:
        families = {
            name: GaugeMetricFamily(f"clawpipe_night_{name}", meaning, labels=("model", *labels))
            for name, (labels, meaning) in FIGURES.items()
        }
        for model, latest in latest_nights(self.home).items():
            for name, labels, value in self._of_model(model, latest):
                families[name].add_metric([model, *labels], value)
        yield from (family for family in families.values() if family.samples)
        yield _home_bytes(self.home)

    def _of_model(self, model: str, latest: Latest) -> Iterator[_Sample]:
        yield "failures", (), latest.failed
        yield from (("waiting_rows", (dataset,), rows) for dataset, rows in self.waiting(model).items())
        yield from _champion(Tracking.of(self.home, model))
        if latest.success is not None:
            yield "last_success_timestamp_seconds", (), latest.success
        if latest.status:
            yield "last_verdict_timestamp_seconds", (), latest.time
            yield from _of_night(count_evidence_in(self.home, latest.status))
            yield from _of_stages(self.home, latest.status)


_Sample = tuple[str, tuple[str, ...], float]


def _champion(tracking: Tracking) -> Iterator[_Sample]:
    try:
        moves = history(tracking)
    except ClawpipeError:  # a shared ledger that does not answer hides no other figure
        return
    if moves:
        version = moves[-1].to_version
        first = next(move for move in moves if move.to_version == version)
        yield "champion_timestamp_seconds", (version,), datetime.datetime.fromisoformat(first.time).timestamp()


def _of_night(status: NightStatus) -> Iterator[_Sample]:
    yield from (("verdict", (str(one),), one == status.verdict) for one in Decision)
    for role, figures in status.heldout.items():
        if figures:
            labels = role, status.measure
            yield "heldout_success_ratio", labels, figures.success
            yield "heldout_success_low_ratio", labels, figures.low
            yield "heldout_success_high_ratio", labels, figures.high
            yield "heldout_items", labels, figures.n
    left = status.evidence_left
    if left and left.fresh is not None and left.nights is not None:
        yield "evidence_left_items", (), left.fresh
        yield "evidence_left_nights", (), left.nights


def _of_stages(home: Home, status: NightStatus) -> Iterator[_Sample]:
    yield "duration_seconds", (), status.seconds
    prices = prices_of(home, status.night)
    for stage, usage in by_stage(status.steps).items():
        yield "stage_duration_seconds", (stage,), usage.seconds
        yield from (("stage_tokens", (stage, kind), count) for kind, count in usage.tokens.items())
        if usage.accelerator_seconds is not None:
            yield "stage_accelerator_seconds", (stage,), usage.accelerator_seconds
        if prices:
            yield "stage_cost", (stage, prices.currency), price(stage, usage, prices)


def _home_bytes(home: Home) -> Metric:
    """Return the bytes of each directory of the home, and of the files in none."""
    family = GaugeMetricFamily(HOME_BYTES, "Bytes of files in the home, by directory.", labels=("directory",))
    sums: dict[str, int] = {}
    for directory, _, files in os.walk(home.root):
        top = (Path(directory).relative_to(home.root).parts or (".",))[0]
        for file in files:
            with suppress(OSError):  # removed meanwhile
                sums[top] = sums.get(top, 0) + os.lstat(os.path.join(directory, file)).st_size
    for top, total in sorted(sums.items()):
        family.add_metric([top], total)
    return family
