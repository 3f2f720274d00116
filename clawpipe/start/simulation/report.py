"""Report a live demo: a table and a plot of each hour's conversations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field
from rich.table import Table

from clawpipe.learn.evaluation.verdict.statistics import wilson
from clawpipe.start.simulation.conversation import Talk
from clawpipe.start.simulation.headline import Headline

CONFIDENCE = 0.95


class LiveNight(BaseModel):
    """A night's use of an hour's conversations."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    night: str
    verdict: str
    reason: str
    version: str | None = Field(description="that it put in service; None: none")
    captured: int = Field(description="turns of the agent that were stored since the night before")
    judged: int = Field(description="of them those that the judge has a verdict on")
    agreed: float | None = Field(description="share of judged conversations in which the environment says what the judge says")
    trained: int = Field(description="turns that were trained on")
    heldout: float | None = Field(description="success of the candidate on held-out questions")
    seconds: float


class Hour(BaseModel):
    """The conversations between two nights, and while the second one ran."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    hour: int = Field(description="from 1")
    versions: list[str] = Field(description="that answered")
    conversations: int
    success: float = Field(description="share of conversations that the environment's own verifier calls a success")
    low: float
    high: float
    moods: dict[str, int]
    night: LiveNight | None = Field(description="that followed; None: the last hour")


class LiveReport(BaseModel):
    """A live demo from its first conversation to its last."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    seed: int
    hours: list[Hour]
    headline: Headline | None = Field(description="on held-out questions, by which arms are compared; None: there was no night")
    gain: float = Field(description="success of the last hour less that of the first")
    failed_requests: int = Field(description="of the run that made this report; an interrupted demo has several")
    minutes: float = Field(description="of that run")
    plot: str


def hours_of(talks: Sequence[Talk], nights: Sequence[LiveNight]) -> list[Hour]:
    """Return the hours in which somebody talked."""
    numbers = sorted({talk.hour for talk in talks})
    return [_hour([talk for talk in talks if talk.hour == n], nights[n] if n < len(nights) else None) for n in numbers]


def _hour(talks: Sequence[Talk], night: LiveNight | None) -> Hour:
    won = sum(talk.success for talk in talks)
    low, high = wilson(won, len(talks), CONFIDENCE)
    return Hour(
        hour=talks[0].hour + 1,
        versions=sorted({talk.version for talk in talks}),
        conversations=len(talks),
        success=won / len(talks),
        low=low,
        high=high,
        moods=dict(sorted(Counter(talk.mood for talk in talks).items())),
        night=night,
    )


def gain_of(hours: Sequence[Hour]) -> float:
    """Return by how much the last hour's success exceeds the first's."""
    return round(hours[-1].success - hours[0].success, 4) if hours else 0.0


def table(report: LiveReport) -> Table:
    """Return the hours as a table for a terminal."""
    shown = Table(title=str(report.headline or ""), title_justify="left")
    for name in ("hour", "model", "talks", "success", "praised", "captured", "judged", "trained", "night after it"):
        shown.add_column(name, justify="left" if name in ("model", "night after it") else "right")
    for hour in report.hours:
        shown.add_row(
            str(hour.hour),
            ", ".join(hour.versions),
            str(hour.conversations),
            f"{hour.success:.3f} [{hour.low:.3f}, {hour.high:.3f}]",
            f"{hour.moods.get('praise', 0) / hour.conversations:.0%}",
            *_night_cells(hour.night),
        )
    return shown


def _night_cells(night: LiveNight | None) -> list[str]:
    if night is None:
        return ["", "", "", ""]
    became = f", version {night.version}" if night.version else ""
    return [str(night.captured), str(night.judged), str(night.trained), f"{night.verdict}{became}"]


def plot(hours: Sequence[Hour], file: Path) -> None:
    """Draw success by hour with intervals into a PNG."""
    from matplotlib.figure import Figure  # takes a second to load

    figure = Figure(figsize=(6.4, 4.0), layout="constrained")
    axes = figure.subplots()
    means = [hour.success for hour in hours]
    below, above = [hour.success - hour.low for hour in hours], [hour.high - hour.success for hour in hours]
    axes.errorbar([hour.hour for hour in hours], means, yerr=[below, above], marker="o", capsize=4)
    axes.set_xticks([hour.hour for hour in hours], [f"hour {hour.hour}\nmodel {', '.join(hour.versions)}" for hour in hours])
    axes.set_ylim(0, 1)
    axes.set_ylabel("success by the environment's verifier")
    axes.set_title(f"{sum(hour.conversations for hour in hours)} conversations, trained on what users said of them", fontsize=10)
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(file, format="png", dpi=120, metadata={"Software": None})
