"""Two machines of one home: what one has begun, the other goes on with. Each has a directory of its own."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from clawpipe.core.ledger.lease import lease
from clawpipe.core.store.objects import Objects

pytestmark = [pytest.mark.slow, pytest.mark.long]
AGAIN = 75
SHORT = ("rounds=1", "train.optimizer_steps=2")
EACH_TIME = {"record_look", "publish_lineage"}


@pytest.fixture
def shared(bucket) -> str:
    return f"s3://{bucket}/agents/home"


@pytest.fixture
def machine(new_clawpipe, shared, tmp_path, monkeypatch) -> Iterator:
    """machine(name): the command line on a machine that shares its home with the others."""
    monkeypatch.setenv("CLAWPIPE_SHARED", shared)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/registry.db")
    made = []

    def start(name: str):
        made.append(new_clawpipe(name))
        return made[-1]

    yield start
    for one in made:
        one.await_quiet()


def digests(status: dict) -> dict[str, str | None]:
    return {step["name"]: step["digest"] for step in status["steps"] if step["name"] not in {*EACH_TIME, "register", "promote"}}


def test_a_night_goes_on_on_another_machine(machine, new_clawpipe, monkeypatch):
    first = machine("first")
    killed = first.run(*SHORT, kill_at="store.before_rename/eval_results")
    assert killed.code == -signal.SIGKILL
    first.await_quiet()

    second = machine("second")
    done = second.night(*SHORT)
    states = {step["name"]: step["state"] for step in done["steps"] if step["name"] not in EACH_TIME}
    assert [name for name, state in states.items() if state == "ran"] == [
        "evaluate/base",
        "evaluate/candidate",
        "gate",
        "register",
        "promote",
    ]
    assert first.home.root != second.home.root
    assert (first.home.root / "id").read_text() == (second.home.root / "id").read_text()

    assert {step["state"] for step in first.night(*SHORT)["steps"] if step["name"] not in EACH_TIME} == {"cached"}

    for name in ("CLAWPIPE_SHARED", "MLFLOW_TRACKING_URI"):
        monkeypatch.delenv(name)
    alone = new_clawpipe("alone").night(*SHORT)
    assert digests(done) == digests(alone)
    assert (done["verdict"], done["heldout"]) == (alone["verdict"], alone["heldout"])


def test_one_machine_at_a_time_runs_a_night(machine, shared):
    other = machine("other")
    night = other("plan", *other.options(*SHORT)).json["night"]
    with lease(Objects(shared), f"leases/{night}"):
        refused = other.run(*SHORT)
    assert refused.code == AGAIN
    assert "is run by process" in refused.stdout


def test_machines_of_one_home_need_one_registry(machine, monkeypatch):
    alone = machine("alone")
    monkeypatch.delenv("MLFLOW_TRACKING_URI")
    refused = alone.run(*SHORT)
    assert refused.code == 2
    assert "MLFLOW_TRACKING_URI" in refused.stdout
