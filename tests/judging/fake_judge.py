"""A fake judge: a real HTTP server that speaks OpenAI's chat completions and answers as a test says, without a language model."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Says = Callable[[str, str], "str | int"]  # of the system and the user message: the answer, or the status of a refusal


@dataclass
class FakeJudge:
    """A running judge. `asked` holds the bodies of its requests."""

    says: Says
    url: str = ""
    asked: list[dict[str, Any]] = field(default_factory=list)


@contextmanager
def fake_judge(says: Says) -> Iterator[FakeJudge]:
    judge, lock = FakeJudge(says), threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            with lock:
                judge.asked.append(body)
            said = judge.says(*(message["content"] for message in body["messages"]))
            status, answer = (said, {}) if isinstance(said, int) else (200, _completion(said))
            data = json.dumps(answer).encode()
            with suppress(ConnectionError):  # whoever asked was killed
                self.send_response(status)
                self.send_header("content-length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    judge.url = f"http://127.0.0.1:{server.server_port}/v1"
    try:
        yield judge
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def code_in(system: str) -> str:
    """The code that the system message demands."""
    return json.loads(system[system.rindex('{"code"') :].replace("1 or 0 or -1", "0"))["code"]


def verdict(system: str, value: object, *hints: str) -> str:
    return json.dumps({"code": code_in(system), "verdict": value, "hints": hints})


def _completion(text: str) -> dict[str, Any]:
    return {
        "choices": [{"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 100, "completion_tokens": 10},
    }
