"""Calls that last: a client hears that its call is at work, and a trial of models goes on while the client does other things."""

from __future__ import annotations

import threading

import anyio
import pytest
from mcp import Client
from pydantic import BaseModel

from clawpipe.core.store.home import Home
from clawpipe.errors import ConfigError
from clawpipe.start.mcp import protocol, trying
from clawpipe.start.mcp.desk import Desk
from clawpipe.start.mcp.protocol import Tool, call, server_of
from clawpipe.start.mcp.tools import tools_of
from clawpipe.start.mcp.trials import Trials
from tests.mcp.test_choosing import TINY

LONG = 60.0


class Nothing(BaseModel):
    """No arguments."""


def test_a_client_hears_that_its_call_is_at_work(monkeypatch):
    monkeypatch.setattr(protocol, "BEAT", 0.01)
    heard, told = threading.Event(), []

    async def progress(done: float, total: float | None, message: str | None) -> None:
        told.append((done, total, message))
        heard.set()

    def works(_: Nothing) -> dict:
        return {"heard": heard.wait(LONG)}

    async def asked() -> str:
        server = server_of([Tool("slow", "", Nothing, works)], "1", "")
        async with Client(server) as client:
            answer = await client.call_tool("slow", {}, progress_callback=progress)
            return answer.content[0].text

    assert '"heard": true' in anyio.run(asked)
    assert told[0] == (1, None, "slow has worked for 0 s")


def test_a_trial_goes_on_while_its_client_does_other_things():
    trials, go_on, begun = Trials(), threading.Event(), []

    def work() -> dict:
        begun.append(1)
        assert go_on.wait(LONG)
        return {"correct": 3}

    assert trials.answer("a", work, 0.0) is None
    assert trials.answer("a", work, 0.0) is None  # the same trial, not another one
    go_on.set()
    assert trials.answer("a", work, LONG) == {"correct": 3}
    assert begun == [1]
    assert trials.answer("a", work, LONG) == {"correct": 3}  # asked anew, it is played anew
    assert begun == [1, 1]


def test_trials_run_one_after_the_other():
    trials, first, second = Trials(), threading.Event(), threading.Event()

    def waits() -> dict:
        assert first.wait(LONG)
        return {"second began": second.is_set()}

    def begins() -> dict:
        second.set()
        return {}

    assert trials.answer("first", waits, 0.0) is None
    assert trials.answer("second", begins, 0.0) is None
    first.set()
    assert trials.answer("first", waits, LONG) == {"second began": False}
    assert trials.answer("second", begins, LONG) == {}


def test_what_a_trial_raises_reaches_who_asks():
    def fails() -> dict:
        raise ConfigError("no such model")

    with pytest.raises(ConfigError, match="no such model"):
        Trials().answer("a", fails, LONG)


def test_a_client_is_told_to_ask_again_for_a_long_trial(tmp_path, monkeypatch):
    go_on = threading.Event()
    monkeypatch.setattr(trying, "PATIENCE", 0.0)
    monkeypatch.setattr(trying, "_tried", lambda *_: {"name": "m", "accuracy": 0.5 if go_on.wait(LONG) else None})
    tools = tools_of(Desk(Home(tmp_path), TINY, test_models=["m@http://127.0.0.1:1/v1"]))
    call(tools, "rl_select_environment", {"name": "letters"})
    told, failed = call(tools, "rl_test_inference", {"num_steps": 1, "group_size": 2})
    assert (told["status"], failed) == ("running", False)
    assert call(tools, "rl_list_runs", {}) == ({"runs": [], "count": 0}, False)  # meanwhile
    go_on.set()
    monkeypatch.setattr(trying, "PATIENCE", LONG)
    found, _ = call(tools, "rl_test_inference", {"num_steps": 1, "group_size": 2})
    assert found["summary"]["avg_accuracy"] == 0.5
