"""A fake vLLM server: its protocol in front of the embedded engine, so that its tokens and log-probs are true; and faults by hand.

The shapes are those that vLLM 0.32 answers with (`vllm/entrypoints/scale_out/token_in_token_out/protocol.py`); a real one is asked
by `make test-vllm`. As a process of its own, which can be killed:

    python -m tests.fake_vllm BASE PORT [--stale] [--seconds S]
"""

from __future__ import annotations

import argparse
import json
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

from clawpipe.model.engines.base import Sampling
from clawpipe.model.engines.embedded import EmbeddedEngine

Json = dict[str, Any]
Fault = Callable[["FakeVllm", Json], tuple[int, Json] | None]


@dataclass
class FakeVllm:
    """What the server holds.

    Attributes:
        base: directory of its base model, served as `base`.
        raw: it gives log-probs at temperature 1, as vLLM does unless it is told otherwise.
        stale: it samples from the base, whatever adapter it was told to load.
        takes_adapters: it was started so that it loads adapters.
        seconds: that an answer takes.
        takes: requests to generate at a time; it refuses others.
        weights: version of its base's weights, told with each answer.
        faults: what goes wrong with the next requests to generate, in turn; an answer, or None where nothing is sent.
        asked: paths of all requests.
    """

    GENERATE: ClassVar[str] = "/inference/v1/generate"
    base: Path
    raw: bool = False
    stale: bool = False
    takes_adapters: bool = True
    seconds: float = 0.0
    takes: int = 1000
    weights: str = ""
    key: str = ""
    faults: deque[Fault] = field(default_factory=deque)
    asked: list[str] = field(default_factory=list)
    held: dict[str, str] = field(default_factory=dict)  # adapter's name to its directory
    _engines: dict[str, EmbeddedEngine] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _under_way: list[int] = field(default_factory=list)

    def answer(self, method: str, path: str, body: Json) -> tuple[int, Any]:
        self.asked.append(path)
        if (method, path) == ("GET", "/version"):
            return 200, {"version": "0.32.0-fake"}
        if (method, path) == ("GET", "/v1/models"):
            base = [{"id": "base", "root": str(self.base), "parent": None, "max_model_len": self._engine("base").context}]
            return 200, {"data": base + [{"id": name, "root": root, "parent": "base"} for name, root in self.held.items()]}
        if path == "/v1/load_lora_adapter":
            return self._load(body["lora_name"], body["lora_path"])
        if path == "/v1/unload_lora_adapter":
            return (200, {}) if self.held.pop(body["lora_name"], None) else (404, {})
        if path == self.GENERATE:
            return self._generate_at_a_time(body)
        return 404, {"error": "no such path"}

    def _generate_at_a_time(self, body: Json) -> tuple[int, Json]:
        """Refuse what is too much; else take the time that an answer takes."""
        self._under_way.append(1)
        try:
            if len(self._under_way) > self.takes:
                return 429, {}
            time.sleep(self.seconds)
            return self.generate(body)
        finally:
            self._under_way.pop()

    def generate(self, body: Json) -> tuple[int, Json]:
        """Sample a turn with the embedded engine."""
        name, params = body["model"], body["sampling_params"]
        if name != "base" and name not in self.held:
            return 404, {"error": {"message": f"The model `{name}` does not exist.", "code": 404}}
        assert (params["top_p"], params["top_k"], params["ignore_eos"]) == (1.0, 0, True)
        sampling = Sampling(params["temperature"], params["max_tokens"], tuple(params["stop_token_ids"]))
        with self._lock:
            engine = self._engine("base" if self.stale else name)
            [turn] = engine.begin([body["token_ids"]]).sample({0: params["seed"]}, sampling).values()
            start = len(body["token_ids"])
            logprobs = engine.score([*body["token_ids"], *turn.ids], start) if self.raw else turn.logprobs
        content = [{"token_id": token, "logprob": value, "rank": 1} for token, value in zip(turn.ids, logprobs, strict=True)]
        choice = {"index": 0, "token_ids": turn.ids, "finish_reason": turn.finish_reason, "logprobs": {"content": content}}
        choice |= {"weight_versions": [{"version": self.weights, "start": 0, "end": len(turn.ids)}]} if self.weights else {}
        return 200, {"request_id": "r", "model": name, "choices": [choice]}

    def _load(self, name: str, path: str) -> tuple[int, Any]:
        if name in self.held:
            return 400, {"error": {"message": f"The lora adapter '{name}' has already been loaded.", "code": 400}}
        if not self.takes_adapters or not Path(path).is_dir():
            return 404, {"error": {"message": f"No adapter found for {path}", "code": 404}}
        self.held[name] = path
        return 200, "Success"

    def _engine(self, name: str) -> EmbeddedEngine:
        place = self.held.get(name, "")
        if place not in self._engines:
            self._engines[place] = EmbeddedEngine(self.base, Path(place) if place else None, device="cpu")
        return self._engines[place]


def busy(fake: FakeVllm, body: Json) -> tuple[int, Json]:
    return 429, {}


def broken(fake: FakeVllm, body: Json) -> tuple[int, Json]:
    return 500, {"error": "engine is dead"}


def cut(fake: FakeVllm, body: Json) -> None:
    """The connection ends without an answer."""


def slow(fake: FakeVllm, body: Json) -> None:
    """Too slow for a client that waits less than half a second."""
    time.sleep(0.6)


def short(fake: FakeVllm, body: Json) -> tuple[int, Json]:
    """A log-prob is missing."""
    status, answer = fake.generate(body)
    answer["choices"][0]["logprobs"]["content"].pop()
    return status, answer


def unfinished(fake: FakeVllm, body: Json) -> tuple[int, Json]:
    """The turn ends before its limit, for no reason."""
    status, answer = fake.generate(body | {"sampling_params": body["sampling_params"] | {"max_tokens": 1}})
    return status, answer


def changed(fake: FakeVllm, body: Json) -> tuple[int, Json]:
    """The weights were changed within the turn."""
    status, answer = fake.generate(body)
    answer["choices"][0]["weight_versions"] = [{"version": "1", "start": 0, "end": 1}, {"version": "2", "start": 1, "end": 2}]
    return status, answer


def infinite(fake: FakeVllm, body: Json) -> tuple[int, Json]:
    """What vLLM writes for a log-prob that is not finite."""
    status, answer = fake.generate(body)
    answer["choices"][0]["logprobs"]["content"][0]["logprob"] = -9999.0
    return status, answer


@contextmanager
def serving(fake: FakeVllm, port: int = 0) -> Iterator[str]:
    """Serve on a port of loopback, by default a free one; yields the URL."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._send(*fake.answer("GET", self.path, {}))

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            if fake.key and self.headers.get("Authorization") != f"Bearer {fake.key}":
                return self._send(401, {"error": "Unauthorized"})
            if self.path == fake.GENERATE and fake.faults:
                fake.asked.append("fault")
                found = fake.faults.popleft()(fake, body)
                if found is None:
                    self.close_connection = True
                    return None
                return self._send(*found)
            return self._send(*fake.answer("POST", self.path, body))

        def _send(self, status: int, answer: Any) -> None:
            data = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            if status == 429:
                self.send_header("Retry-After", "0")
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: object) -> None: ...

    class Server(ThreadingHTTPServer):
        request_queue_size = 128
        daemon_threads = True

    with Server(("127.0.0.1", port), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("base", type=Path)
    parser.add_argument("port", type=int)
    parser.add_argument("--stale", action="store_true")
    parser.add_argument("--seconds", type=float, default=0.0)
    told = parser.parse_args()
    with serving(FakeVllm(told.base, stale=told.stale, seconds=told.seconds), told.port):
        threading.Event().wait()


if __name__ == "__main__":
    main()
