"""The night's page: a wrong call is found before anything runs, and what changes no result runs nothing again."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from clawpipe.core.config import load_config
from clawpipe.core.services.stack import project_directory
from clawpipe.core.store.home import Home
from clawpipe.core.store.refs import DatasetRef, StepResult
from clawpipe.model.policy.base import resolve_base
from flows import planning
from flows.nightly import the_night
from flows.opening import dry_run_night
from flows.runners import DryRunner
from tasks.step import Call, run_by
from tasks.training import train

PROJECT = project_directory()
TINY = PROJECT / "configs" / "tiny.yaml"
MISTAKES = {
    "start=this.policy": "begin=this.policy",
    "student=this.policy": "pupil=this.policy",
    "summary=night.summary": "summery=night.summary",
}


@pytest.mark.slow
def test_pyright_finds_a_misspelt_argument(tmp_path: Path):
    for name in ("flows", "tasks"):
        shutil.copytree(PROJECT / name, tmp_path / name)
    (tmp_path / "clawpipe").symlink_to(PROJECT / "clawpipe")
    pages = [f"flows/{name}.py" for name in ("round", "judged", "learning", "nightly")]
    for page in pages:
        file = tmp_path / page
        text = file.read_text()
        for right, wrong in MISTAKES.items():
            text = text.replace(right, wrong)
        file.write_text(text)
    (tmp_path / "pyrightconfig.json").write_text('{"typeCheckingMode": "basic", "pythonVersion": "3.11"}')
    words = [sys.executable, "-m", "pyright", "--pythonpath", sys.executable, *pages]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    for wrong in MISTAKES.values():
        assert f'No parameter named "{wrong.partition("=")[0]}"' in done.stdout, done.stdout + done.stderr


def test_a_plan_binds_every_call_before_it_looks_anything_up(home: Home, monkeypatch: pytest.MonkeyPatch):
    """A call that is wrong late in the night ends the plan, though all that comes before it is still to be made."""
    resolve_base("random")

    def wrong(**arguments: Any) -> StepResult:
        return train(begin=arguments.pop("start"), **arguments)  # pyright: ignore[reportCallIssue]

    monkeypatch.setattr("flows.learning.train", wrong)
    with pytest.raises(TypeError, match="start"):
        planning.plan_night(load_config(TINY))


class Made(DryRunner):
    """Answers every step by what its own arguments say, and keeps the keys."""

    def run(self, call: Call) -> StepResult:
        key = call.key or call.name
        self.steps.append({"name": call.name, "key": key})
        made = DatasetRef(name="made", digest=key, rows=1)
        return StepResult(output=made, extras={"trajectories": made, "all": made}, rows_out=1, details={"decision": "HOLD"})

    def run_together(self, calls: list[Call]) -> list[StepResult]:  # type: ignore[override]
        return [self.run(call) for call in calls]


def keys(home: Home, *overrides: str) -> dict[str | None, str | None]:
    """Keys of a night whose steps up to the first training are all there."""
    resolve_base("random")
    runner = Made(home)
    with run_by(runner), pytest.raises(AssertionError):  # `train` gives a model, which nothing here makes
        the_night(dry_run_night(load_config(TINY, overrides)))
    return {step["name"]: step["key"] for step in runner.steps}


def test_another_label_is_another_draw_and_the_same_label_is_not(home: Home):
    first, again, other = keys(home, "night=monday"), keys(home, "night=monday"), keys(home, "night=tuesday")
    assert first == again
    assert all(first[name] != other[name] for name in ("make_items", "round-1/generate_rollouts", "round-1/train"))
    same = keys(home, "night=wednesday", "draw=monday")
    assert same == first


@pytest.mark.parametrize(
    ("override", "unchanged"),
    [
        ("rollouts.items=8", "make_items"),
        ("rollouts.chunks=8", "make_items"),
        ("train.checkpoint_seconds=7", "round-1/train"),
        ("train.dpo.beta=0.7", "round-1/train"),
        ("runtime.workers=2", "round-1/train"),
    ],
)
def test_what_does_not_change_a_result_is_in_no_key(home: Home, override: str, unchanged: str):
    assert keys(home, override)[unchanged] == keys(home)[unchanged]


def test_items_per_round_do_not_evaluate_the_base_again(home: Home):
    found = []
    for override in ("rollouts.items=8", "rollouts.items=16", "rollouts.group_size=4", "evaluation.confidence=0.9"):
        night = dry_run_night(load_config(TINY, [override]))
        found.append(night.rollouts.once(night.config.evaluation.temperature))
    assert len({call_key(found_one) for found_one in found}) == 1


def call_key(config: Any) -> str | None:
    from clawpipe.core.config.night import EnvironmentConfig, Runtime
    from clawpipe.model.policy.version import base_ref
    from tasks.evaluation import evaluate

    items = DatasetRef(name="task_items", digest="d", rows=1)
    policy = base_ref("random", "b", "pythonic", "float32")
    return evaluate.call(items, policy, EnvironmentConfig(name="letters"), config, 0, Runtime()).key
