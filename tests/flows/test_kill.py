"""A night that is killed again and again ends like one that nobody disturbed."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator

import pytest
from prefect.settings import temporary_settings

from flows.bootstrap import prepare_limit

pytestmark = [pytest.mark.slow, pytest.mark.long]

AGAIN = 75  # exit code: try again
NEVER_CACHED = {"record_look", "publish_lineage"}

# In the order in which a night comes by. Each run starts where the one before was killed. The first of two points kills a
# child, the second is reached because the night tries again.
POINTS = [
    "write_atomic.before_rename/night.json",
    "store.before_rename/task_items",
    "write_atomic.before_rename/status.json#2",  # of the second step; the first one is cached by now
    "rollouts.before_rename",
    "rollouts.before_write#2,store.before_rename/trajectories#3",
    "step.before_record/collect_rollouts",
    "step.before_record/validate",
    "store.before_rename/scores",
    "store.before_rename/samples",
    "checkpoint.before_rename#5,train.before_rename",
    "store.before_rename/adapter",
    "store.before_rename/optimizer",
    "step.before_record/train",
    "step.before_record/generate_chunk#2",
    "train.after_step#6,step.before_record/choose_round",
    "store.before_rename/eval_results",
    "step.before_record/gate",
    "registry.after_upload",
    "registry.before_version",
    "step.before_record/register",
    "promote.after_alias",
    "step.before_record/promote",
    "write_atomic.before_rename/lineage.json",
    "write_atomic.before_rename/report.html",
]
TOLD_OF_A_CHILD = {
    "rollouts": "a generation worker was killed",
    "checkpoint": "the trainer ended with code -9",
    "train": "the trainer ended with code -9",
}
# Killed as a person's night would be, in processes of their own below the guards of `clawpipe.core.system.processes`; the others
# are forks.
COLD = "rollouts.before_write#2,store.before_rename/trajectories#3"
NOT_THE_NIGHT = "checkpoint.before_rename#5,train.before_rename"  # the trainer dies at every try, so the night gives up


@pytest.fixture
def clawpipe(new_clawpipe) -> Iterator:
    """A home of its own; a test that fails half-way leaves no process behind."""
    clawpipe = new_clawpipe("killed")
    yield clawpipe
    clawpipe.await_quiet()


def release_accelerator(api: str) -> None:
    """A server of the night's own ends with the night; of one that lives on, the dead holder's lease ends after a minute."""
    with temporary_settings({"PREFECT_API_URL": api, "PREFECT_SERVER_EPHEMERAL_ENABLED": False}):
        prepare_limit(fresh_server=True)


def journal(clawpipe) -> dict[str, str]:
    """State by step of what the last run finished."""
    statuses = list(clawpipe.home.runs.glob("*/status.json"))
    return {step["name"]: step["state"] for file in statuses for step in json.loads(file.read_bytes())["steps"]}


def log(clawpipe) -> str:
    path = clawpipe.home.root / "logs" / "flow.log"
    return path.read_text() if path.exists() else ""


def outcome(status: dict) -> dict:
    """What must not depend on how often a night was interrupted."""
    whole = {name: status[name] for name in ("night", "verdict", "reasons", "heldout", "choice", "model", "policy_version")}
    steps = {
        step["name"]: {name: step[name] for name in ("rows_in", "rows_out", "filtered", "key", "digest")}
        for step in status["steps"]
    }
    return whole | {"steps": steps}


def test_night_killed_at_every_step_ends_like_an_undisturbed_one(clawpipe, finished):
    done: set[str] = set()
    for point in POINTS:
        told = len(log(clawpipe))
        end = (clawpipe.cold if point == COLD else clawpipe).run(kill_at=point)
        assert end.code == (AGAIN if point == NOT_THE_NIGHT else -signal.SIGKILL), (point, end.stdout, end.stderr)
        assert "," not in point or TOLD_OF_A_CHILD[point.split(".")[0]] in log(clawpipe)[told:], point
        clawpipe.await_quiet()
        release_accelerator(clawpipe.api)
        states = journal(clawpipe)
        assert not {step for step, state in states.items() if state != "cached" and step in done}, point
        done |= states.keys() - NEVER_CACHED

    curves = clawpipe.curves()
    status = clawpipe.night()
    assert {step["name"] for step in status["steps"] if step["state"] == "ran"} == NEVER_CACHED
    assert outcome(status) == outcome(finished.status)
    assert status["verdict"] == "PROMOTE"
    assert clawpipe.artifacts() <= finished.artifacts  # nothing else was made; `outcome` says that all of it was
    assert clawpipe.curves() == curves == finished.curves  # one MLflow run, each update once
    assert list(clawpipe.registered()) == ["1"]
    assert [move["to_version"] for move in clawpipe.moves()] == ["1"]
    assert clawpipe.leftovers() == []
