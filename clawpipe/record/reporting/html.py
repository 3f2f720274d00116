"""The night's report: one HTML file without scripts or external files. Every value is escaped, since data come from anywhere."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeGuard

from jinja2 import Environment, PackageLoader, StrictUndefined

from clawpipe.core.config.night import NightConfig
from clawpipe.core.store.files import write_atomic
from clawpipe.record.lineage.record import build_lineage
from clawpipe.record.nights.files import LINEAGE, REPORT
from clawpipe.record.nights.status import Figures, NightStatus, StepEntry
from clawpipe.record.reporting import wording
from clawpipe.record.reporting.judges import judge_lines, review_lines
from clawpipe.record.reporting.transcripts import Transcript

_ROW, _FOOT = 30.0, 24.0
_CURVE_X, _CURVE_Y = (46.0, 250.0), (112.0, 26.0)
_ROUNDING = 1e-9  # by which equal figures differ, relative to their size
_MANY, _MEANS = 200, 50  # values of a curve above which means are drawn, and their largest number
_CURVES = {
    "loss": "loss",
    "approx_kl": "approximate KL",
    "clip_frac": "clipped share",
    "ratio_max": "largest ratio",
    "entropy": "entropy",
    "grad_norm": "gradient norm",
    "tokens_per_second": "trained tokens/s",
}
_BATCH = {
    "success_rate": "Success",
    "reward_mean": "Mean reward",
    "groups": "Groups",
    "trained_tokens": "Trained tokens",
    "demonstrations": "Demonstrations",
    "older_policies": "Of older policies",
}


@dataclass(frozen=True)
class Axis:
    """Maps values from `low` to `high` to positions from `start` to `end`."""

    low: float
    high: float
    start: float
    end: float

    def at(self, value: float) -> float:
        """Return the position of `value`."""
        return round(self.start + (value - self.low) / (self.high - self.low) * (self.end - self.start), 2)


@dataclass(frozen=True)
class Tick:
    at: float
    label: str


@dataclass(frozen=True)
class Interval:
    """One model's bar: positions on the x axis of the interval's ends, `low` and `high`, and of its point."""

    role: str
    y: float
    figures: Figures | None
    low: float = 0.0
    point: float = 0.0
    high: float = 0.0


@dataclass(frozen=True)
class IntervalChart:
    width: float
    height: float
    ticks: tuple[Tick, ...]
    bars: tuple[Interval, ...]


@dataclass(frozen=True)
class Curve:
    """One metric over the optimizer steps of the night: a line per round, and where rounds end; of many steps also their means."""

    title: str
    width: float
    height: float
    left: float
    bottom: float
    ticks: tuple[Tick, ...]
    lines: tuple[tuple[tuple[float, float], ...], ...]
    means: tuple[tuple[float, float], ...]
    bounds: tuple[float, ...]
    steps: int
    unit: str
    last: str


_INTERVALS = Axis(0.0, 1.0, 90.0, 440.0)


def interval_chart(heldout: Mapping[str, Figures | None]) -> IntervalChart:
    """Return a chart of success rates with intervals on a scale from 0 to 1, one bar per model, in the given order."""
    bars = tuple(_interval(role, _ROW * (place + 0.5), figures) for place, (role, figures) in enumerate(heldout.items()))
    ticks = tuple(Tick(_INTERVALS.at(value), f"{value:g}") for value in (0.0, 0.25, 0.5, 0.75, 1.0))
    return IntervalChart(660.0, _ROW * len(bars) + _FOOT, ticks, bars)


def _interval(role: str, y: float, figures: Figures | None) -> Interval:
    if figures is None:
        return Interval(role, y, None)
    return Interval(role, y, figures, *(_INTERVALS.at(value) for value in (figures.low, figures.success, figures.high)))


def curve(title: str, rounds: Sequence[Sequence[float | None]], unit: str = "step") -> Curve | None:
    """Return the curve of a metric, or None if no step has a value.

    Args:
        title: the metric's name.
        rounds: values by round and optimizer step; a None or non-finite value leaves a gap in the line.
        unit: what a value is of, if not of an optimizer step.
    """
    values = [value for steps in rounds for value in steps if _known(value)]
    if not values:
        return None
    count = sum(map(len, rounds))
    across = Axis(0.0, max(count - 1, 1), *_CURVE_X)
    marks = nice_ticks(min(values), max(values))
    up = Axis(marks[0], marks[-1], *_CURVE_Y)
    firsts = [sum(map(len, rounds[:number])) for number in range(len(rounds))]
    lines = [line for first, steps in zip(firsts, rounds, strict=True) for line in _runs(first, steps, across, up)]
    return Curve(
        title=title,
        width=_CURVE_X[1] + 10,
        height=_CURVE_Y[0] + 18,
        left=_CURVE_X[0],
        bottom=_CURVE_Y[0],
        ticks=tuple(Tick(up.at(mark), label) for mark, label in zip(marks, tick_labels(marks), strict=True)),
        lines=tuple(lines),
        means=_means([value for steps in rounds for value in steps], across, up),
        bounds=tuple(across.at(first - 0.5) for first in firsts[1:]),
        steps=count,
        unit=unit,
        last=f"{values[-1]:.4g}",
    )


def _runs(first: int, values: Sequence[float | None], across: Axis, up: Axis) -> list[tuple[tuple[float, float], ...]]:
    """Return the positions of consecutive known values; `first` is the number of the first step."""
    runs: list[list[tuple[float, float]]] = [[]]
    for number, value in enumerate(values, first):
        if _known(value):
            runs[-1].append((across.at(number), up.at(value)))
        elif runs[-1]:
            runs.append([])
    return [tuple(run) for run in runs if run]


def _means(values: Sequence[float | None], across: Axis, up: Axis) -> tuple[tuple[float, float], ...]:
    """Return the positions of means of neighbours, since a line of many values hides their trend; none for few values."""
    if len(values) <= _MANY:
        return ()
    size = math.ceil(len(values) / _MEANS)
    parts = ((first, list(filter(_known, values[first : first + size]))) for first in range(0, len(values), size))
    return tuple((across.at(first + (size - 1) / 2), up.at(sum(part) / len(part))) for first, part in parts if part)


def tick_labels(marks: Sequence[float]) -> list[str]:
    """Return the marks as text, with as many digits (at least 4) as tell them apart."""
    written = ([f"{mark:.{digits}g}" for mark in marks] for digits in range(4, 18))  # 17 digits tell all floats apart
    return next(labels for labels in written if len(set(labels)) == len(set(marks)))


def nice_ticks(low: float, high: float) -> list[float]:
    """Return three to five round numbers, the first at most `low` and the last at least `high`.

    Values that differ by rounding alone are one, of which ticks stand to both sides.
    """
    if high - low <= _ROUNDING * max(abs(low), abs(high)):
        low, high = low - (abs(low) / 2 or 1.0), high + (abs(high) / 2 or 1.0)
    raw = (high - low) / 3
    unit = 10.0 ** math.floor(math.log10(raw))
    steps = [unit * factor for factor in (1, 2, 5, 10, 20) if unit * factor >= raw * 0.999]
    spans = [(math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9), step) for step in steps]
    first, last, step = next(span for span in spans if span[1] - span[0] < 5)  # both ends may fall just beyond a number
    return [float(f"{number * step:.12g}") for number in range(first, last + 1)]


def _known(value: float | None) -> TypeGuard[float]:
    return value is not None and math.isfinite(value)


def write_report(status: NightStatus, run_dir: Path, config: NightConfig, transcripts: Sequence[Transcript] = ()) -> Path:
    """Write `report.html` into the night's run directory, atomically.

    Args:
        status: status of the night, finished or not.
        run_dir: the night's directory.
        config: the night's settings.
        transcripts: held-out conversations to show.

    Returns:
        the file's path.
    """
    path = run_dir / REPORT
    write_atomic(path, render(status, config, transcripts).encode())
    return path


def render(status: NightStatus, config: NightConfig, transcripts: Sequence[Transcript] = ()) -> str:
    """Return the report's HTML."""
    details = {step.name: step.details for step in status.steps}
    rounds = [(step.name.rpartition("/")[0], step) for step in status.steps if step.name.endswith("/curate")]
    return (
        templates()
        .get_template("report.html.jinja")
        .render(
            status=status,
            gate=details.get("gate", {}),
            intervals=interval_chart(status.heldout),
            confidence=config.evaluation.confidence,
            measure=wording.MEASURES[status.measure],
            longest=max((step.seconds for step in status.steps), default=0.0) or 1.0,
            rounds=rounds,
            judges=judge_lines(status.judges),
            reviews=review_lines(status.reviews),
            batch_figures={key: title for key, title in _BATCH.items() if any(key in step.details for _, step in rounds)},
            signals=list(signals(status.steps)),
            slices=sorted({name for rate in (status.choice.rounds if status.choice else ()) for name in rate.slices}),
            curves=_curves(status.steps),
            lineage=build_lineage(status),
            lineage_file=LINEAGE,
            transcripts=transcripts,
            settings=config.model_dump_json(indent=2),
        )
    )


def signals(steps: Sequence[StepEntry]) -> Iterator[str]:
    """Yield what each round drew and weighed, a sentence for each step that did, where the settings asked for it."""
    for step in steps:
        part = step.name.partition("/")[0]
        if drawn := step.details.get("drawn"):
            yield f"{part}: of the items that were drawn {', '.join(f'{count} are {kind}' for kind, count in drawn.items())}."
        if step.name.endswith("/curate") and (slices := step.details.get("slices")):
            shares = (f"{name} {one['share']:.0%} ({one['rows']} rows)" for name, one in slices.items())
            yield f"{part}: the slices' shares of the loss are {', '.join(shares)}."


def templates() -> Environment:
    """Return the environment of the pages' templates, which escapes every value."""
    templates = Environment(
        loader=PackageLoader("clawpipe.record.reporting"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    filters: dict[str, Any] = {"duration": wording.duration, "short": wording.short, "reasons": wording.reasons}
    functions: dict[str, Any] = {
        "candidate": wording.candidate,
        "model_title": wording.model_title,
        "no_verdict": wording.no_verdict,
        "rerun": wording.rerun,
    }
    templates.filters.update(filters)
    templates.globals.update(functions)
    return templates


def _curves(steps: Sequence[StepEntry]) -> list[Curve]:
    """Return curves of the training metrics that were computed, over the night's optimizer steps."""
    rounds = [step.details.get("updates", []) for step in steps if step.name.endswith("/train")]
    drawn = [curve(title, [[step.get(name) for step in steps] for steps in rounds]) for name, title in _CURVES.items()]
    probed = [[one.get("success") for one in step.details["probes"]] for step in steps if "probes" in step.details]
    return [line for line in (*drawn, curve("success on train items that no round takes", probed, "probe")) if line]
