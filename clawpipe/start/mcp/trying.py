"""The tool that tries the selected environment with several models, each with a key of its own, before anything is trained."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from pydantic import BaseModel, ConfigDict, Field

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.core.config.engine import KEYS
from clawpipe.errors import ClawpipeError, ConfigError, NotFoundError
from clawpipe.start.mcp.desk import Desk
from clawpipe.start.mcp.protocol import RefusedError
from clawpipe.start.mcp.trials import Trials

if TYPE_CHECKING:
    from clawpipe.play.environments.discovery import EnvironmentInfo
    from clawpipe.play.rollouts.trial import Task

PATIENCE = 45.0  # seconds; common clients give a call up after 60
_TRIALS = Trials()
_MOST_STEPS, _MOST_SAMPLES = 64, 64
_NEW_TOKENS = 256  # of a turn, where the night has no rollouts of its own that say so
_TURNS = 4


class Try(BaseModel):
    """How much to try."""

    model_config = ConfigDict(extra="forbid")

    num_steps: int = Field(default=3, ge=1, le=_MOST_STEPS, description="Tasks to try.")
    group_size: int = Field(default=16, ge=1, le=_MOST_SAMPLES, description="Episodes of each task.")
    models: list[str] | None = Field(default=None, description="Names of models to try, of those this server has; null: all.")


class TriedModel(NamedTuple):
    """A model that a person lets an agent try."""

    name: str
    reference: str
    variable: str


def try_models(desk: Desk, asked: Try) -> JsonObject:
    """Play a few tasks of the selected environment with each model, and say how many episodes succeeded; say so if that lasts."""
    from clawpipe.play.environments.discovery import show_environment

    settings = desk.settings()
    environment = show_environment(settings.environment.name)[0]
    models = _chosen(desk, asked.models)
    key = (str(desk.root), settings.model_dump_json(), asked.model_dump_json(), *models)
    found = _TRIALS.answer(key, partial(_found, desk, asked, environment, models), PATIENCE)
    return found or {
        "status": "running",
        "environment": environment.name,
        "message": "models are loading or playing; call rl_test_inference again with the same arguments for the result",
    }


def _found(desk: Desk, asked: Try, environment: EnvironmentInfo, models: list[TriedModel]) -> JsonObject:
    output = desk.root / "inference_tests"
    tested = [_tried(desk, model, asked, environment.name, output) for model in models]
    return {
        "environment": environment.name,
        "environment_file": environment.reference.rpartition(":")[0],
        "test_config": {
            "num_steps": asked.num_steps,
            "group_size": asked.group_size,
            "rollouts_per_model": asked.num_steps * asked.group_size,
            "total_rollouts": asked.num_steps * asked.group_size * len(tested),
        },
        "models_tested": tested,
        "summary": _summary(asked, tested, output),
    }


def _chosen(desk: Desk, names: list[str] | None) -> list[TriedModel]:
    known = {model.name: model for model in map(_model_of, desk.test_models or (desk.settings().model.base,))}
    if missing := [name for name in names or () if name not in known]:
        raise RefusedError(NotFoundError(f"this server has no model {missing[0]!r} to try"), available=list(known))
    return [known[name] for name in names] if names else list(known.values())


def require_distinct(given: Sequence[str]) -> None:
    """Check that each model to try has a name of its own: an agent knows them by their names alone, and so do their files.

    Raises:
        ConfigError: two have the same.
    """
    stems = [_stem(_model_of(one).name) for one in given]
    if twice := next((stem for stem in stems if stems.count(stem) > 1), None):
        raise ConfigError(f"two models to try are called {twice}", "--test-model", "try them with two servers, one after the other")


def _model_of(given: str) -> TriedModel:
    """Return a model of `--test-model`: NAME, NAME@URL or NAME@URL=VARIABLE."""
    reference, _, variable = given.partition("=")
    return TriedModel(reference.rpartition("@")[0] or reference, reference, variable or KEYS["openai"])


def _stem(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9.-]+", "_", name)


def _tried(desk: Desk, model: TriedModel, asked: Try, environment: str, output: Path) -> JsonObject:
    """Return what a model did; its episodes are in a JSON Lines file, and what went wrong in a log beside it."""
    from clawpipe.play.rollouts.trial import Limits, try_environment

    settings = desk.settings()
    rollouts = settings.rollouts
    turns, tokens = (rollouts.max_turns, rollouts.max_new_tokens) if rollouts else (_TURNS, _NEW_TOKENS)
    stem = output / f"test_{environment}_{_stem(model.name)}"
    limits = Limits(asked.num_steps, asked.group_size, turns, tokens)
    told: JsonObject = {"model": model.reference, "name": model.name, "output_file": f"{stem}.jsonl", "log_file": f"{stem}.log"}
    output.mkdir(parents=True, exist_ok=True)
    try:
        trial = try_environment(settings.environment, model.reference, limits, Path(f"{stem}.jsonl"), model.variable)
    except ClawpipeError as error:
        Path(f"{stem}.log").write_text(f"{error}\n", "utf-8")
        return told | {"error": " ".join(error.what.split())}
    Path(f"{stem}.log").write_text(f"{trial.first_error}\n" if trial.first_error else "", "utf-8")
    accuracy = {"accuracy": trial.success, "mean_reward": trial.value, "errors": trial.errors, "seconds": trial.seconds}
    return told | _by_step(trial.tasks) | accuracy


def _by_step(tasks: Sequence[Task]) -> JsonObject:
    """Return what each task's episodes did, and their sums, under the usual names: a step is a task."""
    steps = [
        {"step": number, "completions": task.episodes, "correct": task.correct, "scores": list(task.values)}
        for number, task in enumerate(tasks, 1)
    ]
    solved = sum(task.correct > 0 for task in tasks)
    return {
        "steps": steps,
        "steps_tested": len(tasks),
        "total_completions": sum(task.episodes for task in tasks),
        "correct_completions": sum(task.correct for task in tasks),
        "steps_with_correct": solved,
        "step_success_rate": round(solved / len(tasks), 3) if tasks else None,
    }


def _summary(asked: Try, tested: list[JsonObject], output: Path) -> JsonObject:
    good = [one for one in tested if "error" not in one and one["accuracy"] is not None]
    best = max(good, key=lambda one: one["accuracy"], default=None)
    return {
        "steps_requested": asked.num_steps,
        "models_tested": len(tested),
        "models_succeeded": len(good),
        "best_model": best and best["name"],
        "avg_accuracy": round(sum(one["accuracy"] for one in good) / len(good), 3) if good else None,
        "environment_working": bool(good),
        "output_directory": str(output),
    }
