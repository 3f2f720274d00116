"""Trials of models at several endpoints, each with a key of its own: what they answer, and what is kept of it."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from clawpipe.core.store.home import Home
from clawpipe.start.mcp import trying
from clawpipe.start.mcp.desk import Desk
from clawpipe.start.mcp.protocol import call
from clawpipe.start.mcp.tools import tools_of
from tests.mcp.test_choosing import TINY
from tests.service_faults import Server

KEYS = {"GOOD_KEY": "sk-of-good", "MIXED_KEY": "sk-of-mixed", "SHUT_KEY": "sk-of-shut"}
EPISODES = {"num_steps": 2, "group_size": 4}


class Endpoint:
    """An OpenAI-compatible server that counts its requests and answers by their number; with None it refuses the key."""

    def __init__(self, says: Callable[[int], str] | None) -> None:
        self.says, self.keys, self.lock, self.url = says, list[str | None](), threading.Lock(), ""

    def answer(self, key: str | None) -> tuple[int, dict]:
        with self.lock:
            self.keys.append(key)
            number = len(self.keys)
        if self.says is None:
            return 401, {"error": {"message": f"no such key: {key}"}}
        message = {"role": "assistant", "content": self.says(number)}
        return 200, {"choices": [{"index": 0, "message": message, "finish_reason": "stop"}], "usage": {}}


@pytest.fixture
def endpoint() -> Iterator[Callable[..., Endpoint]]:
    """endpoint(says): a running endpoint."""
    servers: list[Server] = []

    def start(says: Callable[[int], str] | None) -> Endpoint:
        there = Endpoint(says)

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, format: str, *args: object) -> None: ...

            def do_POST(self) -> None:
                self.rfile.read(int(self.headers["content-length"]))
                status, answer = there.answer(self.headers.get("authorization"))
                body = json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

        servers.append(Server(("127.0.0.1", 0), Handler))
        threading.Thread(target=servers[-1].serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        there.url = f"http://127.0.0.1:{servers[-1].server_address[1]}/v1"
        return there

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "home")


def test_three_endpoints_are_tried_each_with_its_own_key(home, endpoint, monkeypatch):
    good, shut = endpoint(lambda number: "abc"), endpoint(None)
    mixed = endpoint(lambda number: "abc" if number <= 2 else "123")  # the first two replies, of two turns an episode
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("clawpipe.play.rollouts.trial._CONCURRENCY", 1)  # so that replies are numbered as episodes are
    monkeypatch.setattr(trying, "PATIENCE", 300.0)
    models = [f"good@{good.url}=GOOD_KEY", f"org/mixed@{mixed.url}=MIXED_KEY", f"shut@{shut.url}=SHUT_KEY"]
    tools = tools_of(Desk(home, TINY, test_models=models))
    call(tools, "rl_select_environment", {"name": "letters"})
    found, failed = call(tools, "rl_test_inference", EPISODES)
    assert not failed, found

    assert {*good.keys} == {"Bearer sk-of-good"}
    assert {*mixed.keys} == {"Bearer sk-of-mixed"}
    assert {*shut.keys} == {"Bearer sk-of-shut"}
    assert not [key for key in KEYS.values() if key in json.dumps(found)]
    assert found["test_config"] == {"num_steps": 2, "group_size": 4, "rollouts_per_model": 8, "total_rollouts": 24}
    first, second, third = found["models_tested"]
    assert [(step["step"], step["completions"], step["correct"]) for step in first["steps"]] == [(1, 4, 4), (2, 4, 4)]
    assert first["steps"][0]["scores"] == [1.0] * 4
    assert (first["accuracy"], first["correct_completions"], first["step_success_rate"]) == (1.0, 8, 1.0)
    assert second["correct_completions"] == sum(step["correct"] for step in second["steps"])
    assert 0 < second["correct_completions"] < second["total_completions"] == 8
    assert (second["steps_with_correct"], second["steps_tested"]) == (1, 2)
    assert (third["name"], "steps" in third) == ("shut", False)
    assert "401" in third["error"]
    assert (found["summary"]["models_succeeded"], found["summary"]["best_model"]) == (2, "good")

    output = home.root / "mcp" / "inference_tests"
    names = ("letters_good", "letters_org_mixed", "letters_shut")
    assert {file.name for file in output.iterdir()} == {f"test_{name}.log" for name in names} | {
        f"test_{name}.jsonl" for name in names[:2]
    }
    lines = [json.loads(line) for line in (output / "test_letters_good.jsonl").read_text().splitlines()]
    assert [line["reward"] for line in lines] == [1.0] * 8
    assert "401" in (output / "test_letters_shut.log").read_text()
    assert not [key for key in KEYS.values() for file in output.iterdir() if key in file.read_text()]


def test_only_the_models_that_are_named_are_tried(home, endpoint, monkeypatch):
    one, other = endpoint(lambda number: "abc"), endpoint(lambda number: "abc")
    monkeypatch.setattr(trying, "PATIENCE", 300.0)
    tools = tools_of(Desk(home, TINY, test_models=[f"one@{one.url}", f"other@{other.url}"]))
    call(tools, "rl_select_environment", {"name": "letters"})
    found, _ = call(tools, "rl_test_inference", {"num_steps": 1, "group_size": 1, "models": ["other"]})
    assert ([model["name"] for model in found["models_tested"]], one.keys) == (["other"], [])


def test_two_models_of_one_name_are_refused_at_once(home):
    words = [
        "mcp",
        "--config",
        str(TINY),
        "--test-model",
        "org/a@http://127.0.0.1:1/v1",
        "--test-model",
        "org_a@http://127.0.0.1:2/v1",
    ]
    done = subprocess.run(
        [sys.executable, "-m", "clawpipe.cli.main", *words], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert "two models to try are called org_a" in done.stderr
