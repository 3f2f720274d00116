"""Every model of a home at a glance: how its last night went, what runs now, and when its next night is due."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence

from pydantic import BaseModel, ConfigDict, Field
from rich.console import RenderableType
from rich.table import Table

from clawpipe.core.store.home import Home
from clawpipe.record.reporting.latest import Latest, latest_nights
from clawpipe.record.reporting.wording import elided, one_line
from clawpipe.record.runs.listing import list_runs
from clawpipe.record.runs.record import Run

_NEWEST = 200  # runs among which those that have not ended are
_UNENDED = ("pending", "starting", "running", "stopping")


class ModelStatus(BaseModel):
    """One model."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    model: str
    night: str | None = Field(description="the last night with a verdict")
    verdict: str | None
    time: str | None = Field(description="when it had its verdict, in UTC")
    candidate: float | None = Field(description="held-out figure of its candidate, from 0 to 1")
    failures: int = Field(description="nights that an error ended since")
    now: str | None = Field(description="state of the run that has not ended, and its step")
    next_run: str | None = Field(description="when the next night is due, as `clawpipe up` says")


def model_statuses(home: Home, next_runs: Mapping[str, str]) -> list[ModelStatus]:
    """Return the models for which nights have run, wait or are due, by name.

    Args:
        next_runs: when the next night is due, by model.
    """
    now = {run.model: _now(run) for run in reversed(list_runs(home, _NEWEST)) if run.state in _UNENDED and run.model}
    latest = latest_nights(home)
    return [
        _status(model, latest.get(model, Latest()), now.get(model), next_runs.get(model))
        for model in sorted({*latest, *now, *next_runs})
    ]


def models_table(found: Sequence[ModelStatus]) -> RenderableType:
    """Draw one line per model, in at most 80 columns; times are in UTC, of this year."""
    table = Table("Model", "Verdict", "Held-out", "At, UTC", "Failed", "Now", "Next", box=None, pad_edge=False)
    for one in found:
        figure = "-" if one.candidate is None else f"{one.candidate:.3f}"
        state = one.now and one.now.partition(" ")[0]
        words = (one.verdict, figure, _short(one.time), str(one.failures or "-"), state, _short(one.next_run))
        table.add_row(elided(one.model, 18), *(one_line(word or "-") for word in words))
    return table


def _short(time: str | None) -> str:
    """Return month, day, hour and minute of `2026-11-25 02:00` or `2026-11-25T02:00:00+00:00`."""
    return time[5:16].replace("T", " ") if time else "-"


def _status(model: str, latest: Latest, now: str | None, next_run: str | None) -> ModelStatus:
    status = latest.status
    figures = status.heldout.get("candidate") if status else None
    return ModelStatus(
        model=model,
        night=status and status.night,
        verdict=status and status.verdict,
        time=datetime.datetime.fromtimestamp(latest.time, datetime.UTC).isoformat(timespec="seconds") if status else None,
        candidate=figures and figures.success,
        failures=latest.failed,
        now=now,
        next_run=next_run,
    )


def _now(run: Run) -> str:
    return f"{run.state} {run.step}" if run.state == "running" and run.step else str(run.state)
