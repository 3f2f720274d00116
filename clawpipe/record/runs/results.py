"""What a run's night has measured: held-out figures, verdict, and its training metrics by optimizer step, as far as it has come."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel, Field

from clawpipe.core.store.home import Home
from clawpipe.errors import NotFoundError
from clawpipe.record.nights.files import run_dir
from clawpipe.record.nights.status import Figures, NightStatus, read_status
from clawpipe.record.runs.record import Run
from clawpipe.record.runs.recording import EVENTS
from clawpipe.record.tracking.names import tracked


class Results(BaseModel):
    """The output of `runs results --json`."""

    run: str
    night: str
    state: str
    verdict: str | None
    reasons: list[str]
    measure: str = Field(description="what the held-out figures count")
    heldout: dict[str, Figures | None]
    benchmark: dict[str, Figures]
    metrics: dict[str, list[tuple[int, float]]] = Field(
        description="by the names that trackers show: number of the optimizer step, through all rounds, and value"
    )


def results_of(home: Home, run: Run) -> Results:
    """Return the results of a run's night; while it trains, its metrics up to now.

    Raises:
        NotFoundError: the run's night has not begun.
        DataError: the night's status is damaged.
    """
    if not run.night or not (run_dir(home, run.night) / "status.json").exists():
        fix = f"`clawpipe runs show {run.id}` says what it does"
        raise NotFoundError("the run has no results yet: its night has not begun", run.id, fix)
    status = read_status(home, run.night)
    return Results(
        run=run.id,
        night=run.night,
        state=run.state,
        verdict=status.verdict,
        reasons=status.reasons,
        measure=status.measure,
        heldout=status.heldout,
        benchmark=status.benchmark,
        metrics=_metrics(home, status),
    )


def _metrics(home: Home, status: NightStatus) -> dict[str, list[tuple[int, float]]]:
    """Return each metric's history. Finished trainings are in the status, the one that runs is in the night's events."""
    rounds = {step.name: step.details["updates"] for step in status.steps if "updates" in step.details}
    if not status.verdict:
        for step, metrics in _events(home, status.night):
            if step not in {entry.name for entry in status.steps}:
                rounds.setdefault(step, []).append(metrics)
    found: dict[str, list[tuple[int, float]]] = {}
    before = 0
    for updates in rounds.values():
        by_step = {int(row["step"]): row for row in updates}  # a training that was killed repeats steps since its checkpoint
        for step, row in sorted(by_step.items()):
            for name, value in tracked(row).items():
                found.setdefault(name, []).append((before + step, value))
        before += max(by_step, default=0)
    return found


def _events(home: Home, night: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield step and metrics of the night's optimizer steps, in the order in which they were made."""
    path = run_dir(home, night) / "logs" / EVENTS
    if not path.exists():
        return
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            event = json.loads(line)
            if event["event"] == "training step":
                yield event["step"], event["metrics"]
        except (ValueError, KeyError):  # the unfinished line of a killed run
            continue
