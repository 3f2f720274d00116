"""A night whose rollouts come from an endpoint: as text of somebody else's model, or with the tokens of a known one."""

from __future__ import annotations

import json
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx
import pytest

from clawpipe.core.store.artifacts import Store
from clawpipe.core.store.datasets import dataset_ref, read_dataset
from tests.flows.conftest import Clawpipe
from tests.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.trains]


@contextmanager
def teacher(asked: list[dict[str, Any]]) -> Iterator[str]:
    """A fake endpoint whose model answers in letters, three times out of four."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            asked.append(body)
            message = {"role": "assistant", "content": "77" if body["seed"] % 4 == 0 else "abcdefgh"[body["seed"] % 8] * 2}
            data = json.dumps({"choices": [{"message": message, "finish_reason": "stop"}]}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/v1"
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.parametrize("method", ["sft", "dpo"])
def test_a_night_on_text_evaluates_its_own_model(new_clawpipe, method):
    clawpipe, asked = new_clawpipe(f"text-{method}"), []
    with teacher(asked) as url:
        engine = json.dumps({"name": "openai", "url": url, "model": "somebody"})
        status = clawpipe.night(f"rollouts.engine={engine}", f"train.method={method}", "rounds=1", "train.learning_rate=0.01")
    names = [step["name"] for step in status["steps"]]
    assert "round-1/render" in names
    [step] = [step for step in status["steps"] if step["name"] == "round-1/generate_rollouts"]
    assert step["details"]["sampled_by"] == [{"name": "openai", "model": "somebody", "rows": 128}]
    store, made = Store(clawpipe.home.store), step["artifacts"]["output"]
    rows = read_dataset(store, dataset_ref(store, made["name"], made["digest"])).to_pylist()
    assert {(row["tokens"], row["model"], row["policy_version"], len(row["token_ids"])) for row in rows} == {
        ("none", "somebody", None, 0)
    }
    assert len(asked) == 2 * 128  # turns of rollouts; the held-out answers are the night's own models'
    heldout = status["heldout"]
    assert heldout["candidate"]["success"] > heldout["base"]["success"]


def test_a_method_of_ratios_is_refused_in_one_line(new_clawpipe):
    engine = json.dumps({"name": "openai", "url": "http://127.0.0.1:9/v1", "model": "somebody"})
    done = new_clawpipe("text-grpo").run(f"rollouts.engine={engine}")
    assert done.code == 2
    assert "grpo takes ratios" in done.json["what"]
    assert "text only" in done.json["what"]


def test_a_night_of_ratios_learns_from_the_tokens_of_an_endpoint(new_clawpipe, monkeypatch):
    """The endpoint is a real `clawpipe serve` of the night's base, in its own process."""
    clawpipe = new_clawpipe("endpoint-grpo")
    monkeypatch.setenv("CLAWPIPE_API_KEY", "sk-a-test-key")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-a-test-key")
    with serving_base(clawpipe) as url:
        engine = json.dumps({"name": "openai", "url": url, "model": "random", "tokens": True, "concurrency": 8})
        status = clawpipe.night(f"rollouts.engine={engine}", "rounds=1")
    steps = {step["name"]: step for step in status["steps"]}
    assert steps["round-1/generate_rollouts"]["details"]["sampled_by"] == [{"name": "openai", "model": "random", "rows": 128}]
    [(version, figures)] = steps["round-1/check_recorded"]["details"]["versions"].items()
    assert figures["scored_by"] == version  # the base named itself, and its log-probs are its own
    assert figures["difference"] < 1e-3
    heldout = status["heldout"]
    assert heldout["candidate"]["success"] > heldout["base"]["success"]


@contextmanager
def serving_base(clawpipe: Clawpipe) -> Iterator[str]:
    """`clawpipe serve random`; ended with the block."""
    port = free_port()
    with clawpipe.started("serve", "random", "--port", str(port)) as process:
        url = f"http://127.0.0.1:{port}"
        wait_until(lambda: answers(f"{url}/healthz"), 120.0)
        yield f"{url}/v1"
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)


def answers(url: str) -> bool:
    with suppress(httpx.TransportError):
        return httpx.get(url).status_code == 200
    return False


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
