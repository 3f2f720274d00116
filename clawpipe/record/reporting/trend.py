"""One page over all nights of a home: trends of held-out success, training, rows, time and tokens, and links to their reports."""

from __future__ import annotations

import datetime
import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from clawpipe.core.store.files import write_atomic
from clawpipe.core.store.home import Home
from clawpipe.errors import ClawpipeError
from clawpipe.record.nights.files import REPORT, began, list_nights, run_dir
from clawpipe.record.nights.status import Figures, NightStatus, StepEntry, read_status
from clawpipe.record.reporting import wording
from clawpipe.record.reporting.html import Axis, Curve, Tick, curve, templates

PAGE = "nights.html"
_VERDICTS = ("PROMOTE", "HOLD", "REJECT", "")
_MOST = 8  # curves of reasons, and of stages
_LEFT, _RIGHT, _TOP, _BOTTOM, _STRIP = 34.0, 900.0, 8.0, 190.0, 12.0
_UP = Axis(0.0, 1.0, _BOTTOM, _TOP)
Value = Callable[["Past"], float | None]


@dataclass(frozen=True)
class Past:
    """A night that has begun."""

    status: NightStatus
    started: datetime.datetime
    model: str
    has_report: bool

    @property
    def stages(self) -> dict[str, list[StepEntry]]:
        """The night's steps by stage: `train` holds those of all rounds, `evaluate` those of all models."""
        found: dict[str, list[StepEntry]] = {}
        for step in self.status.steps:
            first, _, rest = step.name.partition("/")
            found.setdefault(rest if first.startswith("round-") else first, []).append(step)
        return found


@dataclass(frozen=True)
class Line:
    """One model's success: `path` joins the intervals' ends night by night, `points` are the figures."""

    role: str
    path: str
    points: tuple[tuple[float, float], ...]


@dataclass(frozen=True)
class Trend:
    """Success with intervals over nights, above a strip of verdicts: a path for each verdict."""

    title: str
    width: float
    height: float
    left: float
    bottom: float
    ticks: tuple[Tick, ...]
    dates: tuple[Tick, ...]
    lines: tuple[Line, ...]
    stroke: float
    verdicts: dict[str, str]


@dataclass(frozen=True)
class Section:
    """The nights of one registered model, the oldest first."""

    model: str
    nights: list[Past]
    counts: dict[str, int]
    trends: list[Trend]
    curves: dict[str, list[Curve]]


def write_page(home: Home) -> tuple[Path, int]:
    """Write the page into the home, atomically. Returns its path and the number of nights on it."""
    nights = past_nights(home)
    path = home.root / PAGE
    write_atomic(path, render(nights).encode())
    return path, len(nights)


def past_nights(home: Home) -> list[Past]:
    """Return the nights of a home in the order in which they began. Damaged ones are left out: `clawpipe status` names them."""
    found = []
    for night in list_nights(home):
        directory = run_dir(home, night)
        try:
            status = read_status(home, night)
        except ClawpipeError:
            continue
        found.append(Past(status, began(home, night), _model(directory, status), (directory / REPORT).exists()))
    return found


def render(nights: Sequence[Past]) -> str:
    """Return the page's HTML: a section for each registered model, the one of the newest night first."""
    models = list(dict.fromkeys(past.model for past in reversed(nights)))
    sections = [section(model, [past for past in nights if past.model == model]) for model in models]
    return templates().get_template("nights.html.jinja").render(sections=sections, count=len(nights))


def section(model: str, nights: list[Past]) -> Section:
    """Return what the page shows of one model's nights."""
    counts = Counter(past.status.verdict or "" for past in nights)
    measure = wording.MEASURES[nights[-1].status.measure]
    trends = [
        trend(f"Held-out: {measure}", nights, lambda status: status.heldout),
        trend(f"Benchmark: {measure}", nights, lambda status: dict(status.benchmark)),
    ]
    groups = {"Training": _training(nights), "Rows": _rows(nights), "Minutes": _minutes(nights), "Thousand tokens": _tokens(nights)}
    return Section(
        model=model,
        nights=nights,
        counts={verdict: counts[verdict] for verdict in _VERDICTS if counts[verdict]},
        trends=[one for one in trends if one],
        curves={title: curves for title, curves in groups.items() if curves},
    )


def trend(title: str, nights: Sequence[Past], figures: Callable[[NightStatus], Mapping[str, Figures | None]]) -> Trend | None:
    """Return the chart of the candidate's and the incumbent's success on a scale from 0 to 1; None without any figure."""
    known = [figures(past.status) for past in nights]
    if not any(one.get("candidate") for one in known):
        return None
    across = Axis(-0.5, len(nights) - 0.5, _LEFT, _RIGHT)
    incumbents = [one.get("champion") or one.get("base") for one in known]
    return Trend(
        title=title,
        width=_RIGHT + 6,
        height=_BOTTOM + _STRIP + 24,
        left=_LEFT,
        bottom=_BOTTOM,
        ticks=tuple(Tick(_UP.at(value), f"{value:g}") for value in (0.0, 0.25, 0.5, 0.75, 1.0)),
        dates=tuple(Tick(_inside(across.at(place)), f"{nights[place].started:%Y-%m-%d}") for place in _ends(len(nights))),
        lines=(_line("incumbent", incumbents, across), _line("candidate", [one.get("candidate") for one in known], across)),
        stroke=round(min(max(0.5 * (_RIGHT - _LEFT) / len(nights), 0.7), 7.0), 2),
        verdicts={verdict: path for verdict in _VERDICTS if (path := _strip(nights, verdict, across))},
    )


def _line(role: str, figures: Sequence[Figures | None], across: Axis) -> Line:
    placed = [(across.at(place), one) for place, one in enumerate(figures) if one]
    ends = " ".join(f"M{x} {_UP.at(one.low)}V{_UP.at(one.high)}" for x, one in placed)
    return Line(role, ends, tuple((x, _UP.at(one.success)) for x, one in placed))


def _strip(nights: Sequence[Past], verdict: str, across: Axis) -> str:
    """Return the path of the boxes of all nights with this verdict."""
    width = round(0.9 * (across.at(1) - across.at(0)), 2)
    places = [place for place, past in enumerate(nights) if (past.status.verdict or "") == verdict]
    return " ".join(f"M{round(across.at(place) - width / 2, 2)} {_BOTTOM + 4}h{width}v{_STRIP}h-{width}z" for place in places)


def _ends(count: int) -> list[int]:
    """Return the first, the middle and the last place, as far as they differ."""
    return sorted({0, count // 2, count - 1} if count > 2 else {0, count - 1})


def _inside(x: float) -> float:
    """Return a position at which a date that is centred there does not leave the chart."""
    return min(max(x, _LEFT + 30), _RIGHT - 30)


def _training(nights: Sequence[Past]) -> list[Curve]:
    wanted: dict[str, Value] = {
        "mean reward": lambda past: _last_detail(past, "curate", "reward_mean"),
        "success of rollouts": lambda past: _last_detail(past, "curate", "success_rate"),
        "tokens of a held-out reply": lambda past: _reply_tokens(past),
        "loss": lambda past: _last_update(past, "loss"),
        "approximate KL": lambda past: _last_update(past, "approx_kl"),
        "entropy": lambda past: _last_update(past, "entropy"),
    }
    return _curves(nights, wanted)


def _rows(nights: Sequence[Past]) -> list[Curve]:
    """Return curves of the rows that were trained on, and of those that were filtered, by reason, the most frequent ones first."""
    filtered = [_filtered(past) for past in nights]
    reasons = [reason for reason, _ in sum(filtered, Counter()).most_common(_MOST)]
    trained = curve("trained on", [[_sum(past, "train", lambda step: step.rows_in) for past in nights]], "night")
    drawn = [curve(wording.one_line(reason), [[counts[reason] for counts in filtered]], "night") for reason in reasons]
    return [one for one in (trained, *drawn) if one]


def _filtered(past: Past) -> Counter[str]:
    return sum((Counter(step.filtered) for step in past.status.steps), Counter())


def _minutes(nights: Sequence[Past]) -> list[Curve]:
    """Return curves of the minutes of a whole night, and of its longest stages."""
    spent = [Counter({name: sum(step.seconds for step in steps) / 60 for name, steps in past.stages.items()}) for past in nights]
    stages = [name for name, _ in sum(spent, Counter()).most_common(_MOST)]
    whole = curve("the night", [[past.status.seconds / 60 or None for past in nights]], "night")
    drawn = [curve(name, [[minutes.get(name) for minutes in spent]], "night") for name in stages]
    return [one for one in (whole, *drawn) if one]


def _tokens(nights: Sequence[Past]) -> list[Curve]:
    wanted: dict[str, Value] = {
        "curate: chosen rows": lambda past: _thousands(past, "curate", lambda step: step.details.get("tokens")),
        "train: sampled tokens": lambda past: _thousands(past, "curate", lambda step: step.details.get("trained_tokens")),
        "evaluate: replies": lambda past: _thousands(past, "evaluate", _evaluated),
    }
    return _curves(nights, wanted)


def _curves(nights: Sequence[Past], wanted: Mapping[str, Value]) -> list[Curve]:
    drawn = [curve(title, [[value(past) for past in nights]], "night") for title, value in wanted.items()]
    return [one for one in drawn if one]


def _last_detail(past: Past, stage: str, name: str) -> float | None:
    return next((step.details[name] for step in reversed(past.stages.get(stage, [])) if step.details.get(name) is not None), None)


def _last_update(past: Past, name: str) -> float | None:
    """Return a metric of the night's last optimizer step that has it."""
    trained = past.stages.get("train", [])
    rows = (row for step in reversed(trained) for row in reversed(step.details.get("updates", [])))
    return next((row[name] for row in rows if row.get(name) is not None), None)


def _reply_tokens(past: Past) -> float | None:
    return next((step.details.get("reply_tokens") for step in past.status.steps if step.name == "evaluate/candidate"), None)


def _evaluated(step: StepEntry) -> float | None:
    """Return how many tokens a model sampled in its evaluation, also on items whose verification failed."""
    tokens = step.details.get("reply_tokens")
    return None if tokens is None else tokens * step.rows_in


def _sum(past: Past, stage: str, value: Callable[[StepEntry], float | None]) -> float | None:
    """Return the sum over a stage's steps; None if no step has a value."""
    known = [found for step in past.stages.get(stage, []) if (found := value(step)) is not None]
    return sum(known) if known else None


def _thousands(past: Past, stage: str, value: Callable[[StepEntry], float | None]) -> float | None:
    found = _sum(past, stage, value)
    return None if found is None else found / 1000


def _model(directory: Path, status: NightStatus) -> str:
    """Return the registered model that a night is for; of one that registered none, as its settings say."""
    if status.model:
        return status.model.name
    try:
        return str(json.loads((directory / "config.json").read_bytes())["registry"]["model_name"])
    except (OSError, ValueError, KeyError, TypeError):
        return "unknown model"
