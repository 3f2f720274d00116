"""Trainings as an agent starts, watches and stops them; those of an earlier server are there for the next one."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
from safetensors.numpy import load_file

from clawpipe.core.config import load_config
from clawpipe.core.store.home import Home
from clawpipe.errors import ClawpipeError
from clawpipe.record.nights.status import read_status
from clawpipe.record.runs.listing import find_run
from clawpipe.record.runs.record import ProcessId, Run, write_record
from clawpipe.start.mcp import training
from clawpipe.start.mcp.desk import Desk
from clawpipe.start.mcp.protocol import call
from clawpipe.start.mcp.tools import tools_of
from tests.mcp.test_choosing import TINY

FAST = ("rounds=1", "rollouts.items=8", "train.optimizer_steps=2", "environment.heldout_items=8", "candidate=last")
LONG = 400.0


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "home")


def desk_of(home: Home, seconds: float = 0.0) -> Desk:
    return Desk(home, TINY, FAST, status_seconds=seconds)


def ask(desk: Desk, tool: str, **arguments: Any) -> dict[str, Any]:
    answer, failed = call(tools_of(desk), tool, arguments)
    assert not failed, answer
    return answer


def recorded(home: Home, name: str, **facts) -> Run:
    run = Run(id=name, started="2026-11-26T01:00:00+00:00", **facts)
    write_record(home, run)
    return run


def finished_steps(home: Home, run: str) -> int:
    try:
        return len(read_status(home, find_run(home, run).night).steps)
    except (ClawpipeError, OSError):
        return 0  # its night has not begun


def wait_for(what: Callable[[], bool]) -> None:
    deadline = time.monotonic() + LONG
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.2)


def test_a_running_training_is_looked_at_once_in_a_while(home):
    recorded(home, "20261126T010000-aaaa", process=ProcessId.own())
    first = ask(desk_of(home, 1800), "rl_check_status", run_id="20261126T010000-aaaa")
    assert (first["status"], first["processes"]["api"]) == ("starting", "running")
    assert {"api", "api_20261126T010000-aaaa"} <= first["logs"].keys()
    again = ask(desk_of(home, 1800), "rl_check_status", run_id="20261126T010000-aaaa")  # another server on this home
    assert again["rate_limited"]
    assert 0 < again["next_check_in_seconds"] <= 1800
    assert "status" in ask(desk_of(home, 0), "rl_check_status", run_id="20261126T010000-aaaa")


def test_a_training_that_ended_may_be_looked_at_at_any_time(home):
    recorded(home, "20261126T010000-aaaa", state="failed", why="the disk is full")
    for _ in range(2):
        assert ask(desk_of(home, 1800), "rl_check_status", run_id="20261126T010000-aaaa")["error"] == "the disk is full"


def test_a_home_trains_once_at_a_time(home):
    desk = desk_of(home)
    ask(desk, "rl_select_environment", name="letters")
    recorded(home, "20261126T010000-aaaa", process=ProcessId.own())
    refused, failed = call(tools_of(desk), "rl_start_training", {})
    assert failed
    assert refused["active_runs"] == ["20261126T010000-aaaa"]


def test_an_unknown_training_names_those_that_run(home):
    recorded(home, "20261126T010000-aaaa", process=ProcessId.own())
    refused, failed = call(tools_of(desk_of(home)), "rl_stop_training", {"run_id": "nope"})
    assert failed
    assert "rl_list_runs" in refused["fix"]
    assert refused["active_runs"] == ["20261126T010000-aaaa"]


def test_what_a_training_printed_says_why_it_never_began(home, tmp_path):
    printed = home.root / "logs" / "runs" / "20261126T010000-aaaa.log"
    printed.parent.mkdir(parents=True)
    printed.write_text("reading x.yaml\nclawpipe: the disk is full\n  -> free some\n")
    gone = ProcessId(host=ProcessId.own().host, number=2**22 - 1, started=1.0)
    recorded(home, "20261126T010000-aaaa", process=gone)
    assert ask(desk_of(home), "rl_check_status", run_id="20261126T010000-aaaa")["error"] == "clawpipe: the disk is full"


def test_only_an_interrupted_training_of_equal_settings_goes_on(home):
    desk = desk_of(home)
    ask(desk, "rl_select_environment", name="letters")
    path, labelled = desk.write_config(desk.settings())
    recorded(home, "20261126T010000-aaaa", state="stopped", config=str(path))
    assert training._interrupted(desk, desk.settings()) == (path, labelled)
    ask(desk, "rl_edit_config", field="seed", value=5)
    assert training._interrupted(desk, desk.settings()) is None
    ask(desk, "rl_edit_config", field="seed", value=load_config(TINY).seed)
    recorded(home, "20261126T020000-bbbb", state="completed", verdict="HOLD", config=str(path))
    assert training._interrupted(desk, desk.settings()) is None


def test_ten_samples_of_a_history_end_with_the_last():
    samples = training._history({"loss/total": [(step, step / 10) for step in range(1, 26)], "entropy": [(25, 1.5)]})
    assert len(samples) == 10
    assert samples[-1] == {"step": 25, "loss/total": 2.5, "entropy": 1.5}
    assert [one["step"] for one in samples] == sorted({one["step"] for one in samples})


@pytest.mark.slow
@pytest.mark.long
def test_a_training_is_stopped_goes_on_and_names_its_weights(home):
    """Each step asks a new server, as a client that was started again would."""
    ask(desk_of(home), "rl_select_environment", name="letters")
    ask(desk_of(home), "rl_edit_config", field="train.learning_rate", value=1e-3)
    first = ask(desk_of(home), "rl_start_training")
    wait_for(lambda: ask(desk_of(home), "rl_check_status", run_id=first["run_id"]).get("step") is not None)
    assert ask(desk_of(home), "rl_stop_training", run_id=first["run_id"])["status"] == "stopped"

    second = ask(desk_of(home), "rl_start_training")
    assert second["config_path"] == first["config_path"]
    assert second["run_id"] != first["run_id"]
    wait_for(lambda: ask(desk_of(home), "rl_check_status", run_id=second["run_id"])["status"] in ("completed", "failed"))
    found = ask(desk_of(home), "rl_get_results", run_id=second["run_id"])
    assert (found["status"], found["environment"]) == ("completed", "letters")
    assert found["verdict"] in ("PROMOTE", "HOLD", "REJECT")
    assert load_file(Path(found["weights"]) / "adapter_model.safetensors")
    assert found["heldout"].keys() == {"base", "candidate"}
    assert found["history"][-1]["learning_rate"] == pytest.approx(1e-3)
    states = {run["run_id"]: run["status"] for run in ask(desk_of(home), "rl_list_runs")["runs"]}
    assert states == {first["run_id"]: "stopped", second["run_id"]: "completed"}
    assert json.loads(json.dumps(found)) == found


@pytest.mark.slow
@pytest.mark.long
def test_a_training_goes_on_after_everything_was_killed(home):
    """As a machine that lost its power leaves it: no process of the training or of a server is left."""
    ask(desk_of(home), "rl_select_environment", name="letters")
    first = ask(desk_of(home), "rl_start_training")
    wait_for(lambda: finished_steps(home, first["run_id"]) >= 3)
    process = find_run(home, first["run_id"]).process.find()
    below = [process, *process.children(recursive=True)]
    for one in below:
        with contextlib.suppress(psutil.NoSuchProcess):
            one.kill()
    psutil.wait_procs(below, timeout=LONG)

    told = ask(desk_of(home), "rl_check_status", run_id=first["run_id"])
    assert told["status"] == "failed"
    assert set(told["processes"].values()) == {"not running"}
    second = ask(desk_of(home), "rl_start_training")
    assert second["config_path"] == first["config_path"]
    assert "goes on where it was interrupted" in second["message"]
    wait_for(lambda: ask(desk_of(home), "rl_check_status", run_id=second["run_id"])["status"] in ("completed", "failed"))
    found = ask(desk_of(home), "rl_get_results", run_id=second["run_id"])
    assert found["status"] == "completed"
    states = [step.state for step in read_status(home, find_run(home, second["run_id"]).night).steps]
    assert "cached" in states  # what was finished before is not done again
