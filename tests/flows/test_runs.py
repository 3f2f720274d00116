"""`clawpipe runs` on real nights: listed while they run, stopped, killed, and gone on with."""

from __future__ import annotations

import signal
from typing import Any

import pytest

from flows.bootstrap import prepare_limit

pytestmark = pytest.mark.slow


@pytest.fixture
def clawpipe(new_clawpipe):
    return new_clawpipe("runs")


def await_step(clawpipe, step: str) -> dict[str, Any]:
    """The run, once it is at a step whose name ends so."""
    while True:
        listed = clawpipe("runs", "list", "--json").json["runs"]
        if listed and (listed[0]["step"] or "").endswith(step):
            return listed[0]


def test_a_night_is_stopped_with_its_children_and_goes_on(clawpipe, prefect_api):
    with clawpipe.started("run", *clawpipe.options()) as process:
        run = await_step(clawpipe, "train")
        assert (run["state"], run["started_by"], run["model"]) == ("running", "hand", "clawpipe-tiny")
        stopped = clawpipe("runs", "stop", run["id"], "--json").json
        assert clawpipe.processes() == []
        assert process.wait(0) == 130
    assert (stopped["state"], stopped["night"]) == ("stopped", run["night"])
    prepare_limit(fresh_server=True)  # of a server that lives on, a dead holder's lease ends after a minute

    done = clawpipe.night()
    states = {step["name"]: step["state"] for step in done["steps"]}
    assert states["round-1/curate"] == "cached"
    assert states["gate"] == "ran"
    listed = clawpipe("runs", "list", "--json").json["runs"]
    assert [(one["id"], one["state"]) for one in listed] == [(done["run"], "completed"), (run["id"], "stopped")]
    history = clawpipe("runs", "results", "--json").json["metrics"]["loss/total"]
    assert [step for step, _ in history] == list(range(1, 17))
    shown = clawpipe("runs", "logs", run["id"][:18]).stdout
    assert f"{run['id']} night stopped" in shown
    assert f"{done['run']} night completed verdict={done['verdict']}" in shown


def test_a_killed_night_shows_as_failed_and_can_be_resumed(clawpipe, finished):
    killed = clawpipe.run(kill_at="store.before_rename/scores")
    assert killed.code == -signal.SIGKILL
    [run] = clawpipe("runs", "list", "--state", "failed", "--json").json["runs"]
    assert "its process is gone" in run["why"]
    assert run["step"] == "round-1/score"
    clawpipe.await_quiet()
    assert clawpipe("runs", "stop", run["id"]).code == 0  # nothing is left to stop
