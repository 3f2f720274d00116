"""Results of a sweep: as JSON, as a table, and as a config to run."""

from __future__ import annotations

from collections import Counter
from typing import Any, TypedDict

import yaml
from optuna.trial import FrozenTrial, TrialState
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from clawpipe.core.basics.json_types import Options
from clawpipe.core.store.files import write_atomic
from clawpipe.record.reporting.wording import one_line
from clawpipe.start.sweeping.space import draw
from clawpipe.start.sweeping.study import Study

BEST = "best.yaml"
OBJECTIVE = "success of the candidate on the held-out items"
_STATES = {
    TrialState.COMPLETE: "complete",
    TrialState.PRUNED: "pruned",
    TrialState.FAIL: "failed",
    TrialState.RUNNING: "running",
    TrialState.WAITING: "waiting",
}


class TrialResult(TypedDict):
    """One trial of a sweep."""

    number: int
    state: str
    value: float | None  # success on the held-out items; None without a verdict
    interval: list[float] | None
    rounds: dict[str, float]  # success on training items after each round
    params: Options  # the settings that the sweep varies
    verdict: str | None
    night: str | None
    run_dir: str | None
    error: str | None


class BestTrial(TrialResult):
    """The best trial of a sweep."""

    config: str  # file with its settings


class SweepResult(TypedDict):
    """What `clawpipe sweep --json` prints."""

    sweep: str
    directory: str
    objective: str
    counts: dict[str, int]
    trials: list[TrialResult]
    best: BestTrial | None


def report(study: Study) -> SweepResult:
    """Return every trial and the best one, as JSON. `best` is None while no trial has a verdict."""
    trials = [_trial(study, trial) for trial in study.trials]
    best = _best(study)
    return {
        "sweep": study.sweep.id,
        "directory": str(study.directory),
        "objective": OBJECTIVE,
        "counts": dict(Counter(trial["state"] for trial in trials)),
        "trials": trials,
        "best": None if best is None else {**trials[best.number], "config": str(study.directory / BEST)},
    }


def write_best(study: Study) -> None:
    """Write the settings of the best trial, if there is one, with the label of the sweep's config.

    Its draw is the label's, not that of the trials: under a label of its own the night answers items that no trial has answered.
    """
    best = _best(study)
    if best is None:
        return
    config = study.night(best.number).model_copy(update={"night": study.sweep.config.night, "draw": None})
    count = sum(trial.state == TrialState.COMPLETE for trial in study.trials)
    settings = yaml.safe_dump(config.model_dump(mode="json"), sort_keys=False, allow_unicode=True)
    head = f"# Trial {best.number} of sweep {study.sweep.id}: {OBJECTIVE} {best.value:.3f}, the best of {count}.\n"
    write_atomic(study.directory / BEST, (head + settings).encode())


def table(results: SweepResult) -> RenderableType:
    """Draw `report`'s result as a table, best first, then trials that ended early."""
    grid = Table(box=None, pad_edge=False, header_style="dim")
    for name in ("Trial", "State", "Success", "Settings"):
        grid.add_column(name, overflow="fold")
    for trial in sorted(results["trials"], key=lambda trial: -1.0 if trial["value"] is None else trial["value"], reverse=True):
        settings = "\n".join(f"{one_line(name)}={_shown(value)}" for name, value in trial["params"].items())
        grid.add_row(*map(Text, (str(trial["number"]), trial["state"], _success(trial), settings)))
    errors = [Text(f"trial {trial['number']}: {one_line(trial['error'])}", "red") for trial in results["trials"] if trial["error"]]
    best = results["best"]
    end = "no trial came to a verdict"
    if best:
        label = f"-o night={results['sweep']}-best"  # which draws items of its own
        end = f"best: trial {best['number']}, {best['value']:.3f}; run it with\n  clawpipe run -c {best['config']} {label}"
    return Group(grid, *errors, "", Text(end, no_wrap=True, overflow="ignore"))


def _trial(study: Study, trial: FrozenTrial) -> TrialResult:
    notes = trial.user_attrs
    drawn = set(study.sweep.space) <= trial.params.keys()
    return {
        "number": trial.number,
        "state": _STATES[trial.state],
        "value": trial.value if trial.state == TrialState.COMPLETE else None,
        "interval": [notes["heldout"]["low"], notes["heldout"]["high"]] if "heldout" in notes else None,
        "rounds": {str(number): value for number, value in sorted(trial.intermediate_values.items())},
        "params": draw(_Drawn(trial.params), study.sweep.space) if drawn else trial.params,
        "verdict": notes.get("verdict"),
        "night": notes.get("night"),
        "run_dir": notes.get("run_dir"),
        "error": notes.get("error"),
    }


class _Drawn:
    """Returns the values that a trial already has."""

    def __init__(self, params: Options) -> None:
        self._params = params

    def suggest_int(self, name: str, low: int, high: int, **options: Any) -> int:
        return self._params[name]

    def suggest_float(self, name: str, low: float, high: float, **options: Any) -> float:
        return self._params[name]

    def suggest_categorical(self, name: str, choices: list[Any]) -> Any:
        return self._params[name]


def _best(study: Study) -> FrozenTrial | None:
    """Return the best trial, the earliest of equals."""
    done = [trial for trial in study.trials if trial.state == TrialState.COMPLETE]
    return max(done, key=lambda trial: (trial.value or 0.0, -trial.number), default=None)


def _success(trial: TrialResult) -> str:
    if trial["value"] is None or trial["interval"] is None:
        return "-"
    low, high = trial["interval"]
    return f"{trial['value']:.3f} [{low:.3f}, {high:.3f}]"


def _shown(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else one_line(str(value))
