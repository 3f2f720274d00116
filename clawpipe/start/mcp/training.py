"""The tools that start, watch and stop trainings. A training is a run of a night; it goes on when this server ends."""

from __future__ import annotations

import datetime
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
from pydantic import BaseModel, ConfigDict, Field

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.core.config.load import load_config
from clawpipe.core.config.night import NightConfig
from clawpipe.core.store.files import write_atomic
from clawpipe.core.store.home import Home
from clawpipe.core.store.open import open_store
from clawpipe.core.store.refs import ModelRef
from clawpipe.errors import BusyError, ClawpipeError, NotFoundError
from clawpipe.record.nights.files import night_id, run_dir
from clawpipe.record.nights.status import read_status
from clawpipe.record.registry.night_summary import run_title
from clawpipe.record.runs.launch import launch, output_of
from clawpipe.record.runs.listing import find_run, list_runs
from clawpipe.record.runs.logs import log_files
from clawpipe.record.runs.record import Run
from clawpipe.record.runs.recording import EVENTS
from clawpipe.record.runs.results import results_of
from clawpipe.record.runs.stop import stop_run
from clawpipe.start.mcp.desk import Desk
from clawpipe.start.mcp.protocol import RefusedError

_MODULES = {
    "trainer": "clawpipe.learn.training",
    "env": "clawpipe.play.workers",
}  # what the processes below a night run, by their usual names
_HISTORY = 10  # samples of the metrics' history
_LISTED = 50
_TAIL = 2000  # bytes of what a run printed, whose last line says why it never began


class Nothing(BaseModel):
    """A tool without arguments."""

    model_config = ConfigDict(extra="forbid")


class OneRun(BaseModel):
    """A tool about one training."""

    model_config = ConfigDict(extra="forbid")

    run_id: str = Field(min_length=1, description="Id of the training, as rl_start_training and rl_list_runs give it.")


def start(desk: Desk, _: Nothing) -> JsonObject:
    """Start a training with the settings as they stand; one that was interrupted with the same settings goes on."""
    settings = desk.settings()
    if active := _active(desk.home):
        what = f"{active[0].id} is under way, and a home runs one training at a time"
        raise RefusedError(BusyError(what, fix="rl_stop_training stops it"), active_runs=[run.id for run in active])
    interrupted = _interrupted(desk, settings)
    path, labelled = interrupted or desk.write_config(settings)
    run = launch(desk.home, path, night_id(labelled), labelled.registry.model_name)
    word = "goes on where it was interrupted" if interrupted else "starts"
    return {
        **_named(run, desk),
        "status": run.state,
        "config": labelled.model_dump(mode="json"),
        "config_path": str(path),
        "logs": _logs(desk.home, run),
        "message": f"the training {word}; rl_check_status tells how it goes, at most once in {_minutes(desk.status_seconds)}",
    }


def check(desk: Desk, asked: OneRun) -> JsonObject:
    """Tell how a training goes; the same running one only now and then, for each look costs the agent tokens and time."""
    run = _found(desk.home, asked.run_id)
    if not run.has_ended and (wait := _wait(desk, run)):
        message = f"the last status of this training is not {_minutes(desk.status_seconds)} old"
        return {"rate_limited": True, "run_id": run.id, "message": message, "next_check_in_seconds": wait}
    told = {
        **_named(run, desk),
        "status": run.state,
        "step": run.step,
        "running_time_minutes": round(_minutes_of(run), 1),
        "processes": _processes(run),
        "logs": _logs(desk.home, run),
    }
    why = {"error": why} if (why := _why(desk.home, run)) else {}
    metrics = {"metrics": metrics} if (metrics := _metrics(desk.home, run)) else {}
    return told | why | metrics


def stop(desk: Desk, asked: OneRun) -> JsonObject:
    """Stop a training with all its processes. Finished steps are kept."""
    run = _found(desk.home, asked.run_id)
    if run.has_ended:
        return {"message": f"the training is not running: it has {run.state}", "run_id": run.id, "status": run.state}
    run = stop_run(desk.home, run.id)
    message = "the training has stopped; rl_start_training with the same settings goes on where it was"
    return {"message": message, "run_id": run.id, "status": run.state}


def results(desk: Desk, asked: OneRun) -> JsonObject:
    """Return verdict, weights and metrics of a training; while it runs, what there is by now."""
    run = _found(desk.home, asked.run_id)
    found = results_of(desk.home, run)
    figures = {role: figure.model_dump(mode="json", exclude_none=True) for role, figure in found.heldout.items() if figure}
    return {
        **_named(run, desk),
        "status": run.state,
        "verdict": found.verdict,
        "reasons": found.reasons,
        "heldout": figures,
        "weights": _weights(desk.home, run),
        "model": _registered(desk.home, run),
        "final_metrics": {name: history[-1][1] for name, history in found.metrics.items() if history},
        "history": _history(found.metrics),
    }


def list_all(desk: Desk, _: Nothing) -> JsonObject:
    """List the newest trainings, whoever started them."""
    runs = [_named(run, desk) | {"status": run.state, "verdict": run.verdict} for run in list_runs(desk.home, _LISTED)]
    return {"runs": runs, "count": len(runs)}


def _found(home: Home, name: str) -> Run:
    try:
        return find_run(home, name)
    except NotFoundError as error:
        told = NotFoundError(error.what, error.where, "rl_list_runs shows the trainings of this home, with their ids")
        raise RefusedError(told, active_runs=[run.id for run in _active(home)]) from None


def _active(home: Home) -> list[Run]:
    return [run for run in list_runs(home, _LISTED) if not run.has_ended]


def _interrupted(desk: Desk, settings: NightConfig) -> tuple[Path, NightConfig] | None:
    """Return the newest training with these settings, if it has been interrupted."""
    ours = [run for run in list_runs(desk.home, _LISTED) if Path(run.config).parent == desk.configs]
    for run in ours[:1]:
        path = Path(run.config)
        if run.state in ("failed", "stopped") and run.verdict is None and path.exists():
            labelled = load_config(path, [])
            if labelled.model_copy(update={"night": settings.night}) == settings:
                return path, labelled
    return None


def _named(run: Run, desk: Desk) -> JsonObject:
    """Return the names of a training, as all tools give them."""
    settings = _settings(desk.home, run)
    project = settings.get("tracking", {}).get("wandb")
    environment = settings.get("environment", {}).get("name", "")
    return {
        "run_id": run.id,
        "environment": environment,
        "wandb_project": project,
        "wandb_run_name": run_title(run.night, settings),
    }


def _settings(home: Home, run: Run) -> JsonObject:
    """Return the settings of a run's night; empty where it has none yet that can be read."""
    try:
        return json.loads((run_dir(home, run.night) / "config.json").read_bytes())
    except (OSError, ValueError, ClawpipeError):
        pass
    try:
        return load_config(Path(run.config), run.overrides).model_dump(mode="json")
    except (OSError, ClawpipeError):
        return {}


def _logs(home: Home, run: Run) -> dict[str, str]:
    """Return the log files: under the names that users of such tools know, with and without the run's id, and under their own."""
    files = {path.name: str(path) for path in log_files(home, run)}
    printed, events = output_of(home, run.id), str(run_dir(home, run.night) / "logs" / EVENTS) if run.night else ""
    usual = {"api": str(printed), "trainer": events, "env": next((files[name] for name in files if "worker" in name), events)}
    known = {name: path for name, path in usual.items() if path}
    return known | {f"{name}_{run.id}": path for name, path in known.items()} | files


def _processes(run: Run) -> dict[str, str]:
    """Return which of a training's processes run: the night, its trainer, and what plays episodes."""
    process = run.process.find() if run.process else None
    commands = list(_commands(process)) if process else []
    below = {name: any(module in command for command in commands) for name, module in _MODULES.items()}
    return {name: "running" if there else "not running" for name, there in {"api": process is not None, **below}.items()}


def _commands(process: psutil.Process) -> Iterator[str]:
    for child in process.children(recursive=True):
        try:
            yield " ".join(child.cmdline())
        except psutil.Error:  # it has ended
            continue


def _minutes_of(run: Run) -> float:
    begun = datetime.datetime.fromisoformat(run.started)
    ended = datetime.datetime.fromisoformat(run.ended) if run.ended else datetime.datetime.now(datetime.UTC)
    return (ended - begun).total_seconds() / 60


def _why(home: Home, run: Run) -> str | None:
    """Return why a training failed; of one that never began, the last that it printed."""
    if run.state != "failed":
        return None
    printed = output_of(home, run.id)
    begun = bool(run.night) and (run_dir(home, run.night) / "status.json").exists()
    lines = printed.read_bytes()[-_TAIL:].decode(errors="replace").split("\n") if printed.exists() and not begun else []
    told = [line.strip() for line in lines if line.strip()]
    return next((line for line in reversed(told) if line.startswith("clawpipe:")), run.why)


def _metrics(home: Home, run: Run) -> JsonObject:
    """Return where a training stands, under the usual names; a figure that there is not yet is left out."""
    if not run.night or not (run_dir(home, run.night) / "status.json").exists():
        return {}
    status, found = read_status(home, run.night), results_of(home, run)
    scored = [step.details["reward"]["mean"] for step in status.steps if step.details.get("reward")]
    curated = [step.details["success_rate"] for step in status.steps if step.details.get("success_rate") is not None]
    candidate = found.heldout.get("candidate")
    values = {
        "step": max((history[-1][0] for history in found.metrics.values() if history), default=None),
        "reward_mean": scored[-1] if scored else None,
        "percent_correct": curated[-1] if curated else None,
        "eval_percent_correct": candidate.success if candidate else None,
    }
    return {name: value for name, value in values.items() if value is not None}


def _history(metrics: dict[str, list[tuple[int, float]]]) -> list[JsonObject]:
    """Return at most ten optimizer steps, spread evenly with the last among them, each with its metrics."""
    steps = sorted({step for history in metrics.values() for step, _ in history})
    chosen = steps if len(steps) <= _HISTORY else [steps[(turn + 1) * len(steps) // _HISTORY - 1] for turn in range(_HISTORY)]
    by_step = {step: {name: value for name, history in metrics.items() for at, value in history if at == step} for step in chosen}
    return [{"step": step, **values} for step, values in by_step.items()]


def _weights(home: Home, run: Run) -> str | None:
    """Return where the weights of the candidate lie, else those that were trained last; None: nothing is trained yet."""
    status = read_status(home, run.night)
    trained = [step for step in status.steps if step.name == "choose_round" or step.name.endswith("/train")]
    refs = [step.artifacts["output"] for step in trained if "output" in step.artifacts]
    last = refs[-1] if refs else None
    return str(open_store(home).path(last)) if isinstance(last, ModelRef) and last.stored else None


def _registered(home: Home, run: Run) -> JsonObject | None:
    model = read_status(home, run.night).model
    return model.model_dump(mode="json") if model else None


def _wait(desk: Desk, run: Run) -> int:
    """Return the seconds until a running training may be asked about again; 0: now, which is noted."""
    path = desk.root / "asked.json"
    with desk.alone():
        asked: dict[str, Any] = json.loads(path.read_bytes()) if path.exists() else {}
        left = asked.get(run.id, 0) + desk.status_seconds - time.time()
        if left > 0:
            return max(1, round(left))
        recent = {name: at for name, at in asked.items() if at + desk.status_seconds > time.time()}
        write_atomic(path, json.dumps(recent | {run.id: time.time()}).encode())
    return 0


def _minutes(seconds: float) -> str:
    return f"{seconds / 60:g} minutes" if seconds >= 60 else f"{seconds:g} seconds"
