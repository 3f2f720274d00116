"""A fake of a model at an OpenAI-compatible endpoint. It plays one script: train by clawpipe's tools, and report the verdict."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

_PAUSE = 2.0  # seconds before another look at a training that runs
_BEGINNING = [
    ("rl_list_environments", {}),
    ("rl_select_environment", {"name": "letters"}),
    ("rl_edit_config", {"field": "train.learning_rate", "value": 0.001}),
    ("rl_start_training", {}),
]


def next_call(answers: list[dict[str, Any]]) -> tuple[str, dict[str, Any]] | None:
    """Return the next tool and its arguments, by what the tools have answered so far; None: all is done."""
    if len(answers) < len(_BEGINNING):
        return _BEGINNING[len(answers)]
    last, run = answers[-1], {"run_id": answers[len(_BEGINNING) - 1]["run_id"]}
    if "verdict" in last:
        return None
    return ("rl_get_results", run) if last["status"] in ("completed", "failed") else ("rl_check_status", run)


def _answer(body: dict[str, Any]) -> dict[str, Any]:
    names = [tool["function"]["name"] for tool in body.get("tools", ())]
    answers = [_told(_text(message["content"])) for message in body["messages"] if message["role"] == "tool"]
    wanted = next_call(answers) if any("rl_" in name for name in names) else None
    if wanted is None:
        verdict = answers[-1].get("verdict") if answers else None
        return {"role": "assistant", "content": f"The verdict is {verdict}."}
    if wanted[0] == "rl_check_status":
        time.sleep(_PAUSE)
    name = next(name for name in names if name.endswith(wanted[0]))
    call = {"id": f"call_{len(answers)}", "type": "function", "function": {"name": name, "arguments": json.dumps(wanted[1])}}
    return {"role": "assistant", "content": None, "tool_calls": [call]}


def _text(content: Any) -> str:
    return content if isinstance(content, str) else "".join(part["text"] for part in content)


def _told(text: str) -> dict[str, Any]:
    """Return the tool's own answer: Hermes puts it as text under `result`, and warns of what others say before a long one."""
    answer = json.loads(text[text.index("{") : text.rindex("}") + 1])
    return json.loads(answer["result"]) if isinstance(answer.get("result"), str) else answer


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self._send("application/json", json.dumps({"object": "list", "data": [{"id": "scripted", "object": "model"}]}))

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        message = _answer(body)
        reason = "tool_calls" if "tool_calls" in message else "stop"
        common = {"id": "x", "created": 1, "model": "scripted"}
        usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        if not body.get("stream"):
            choice = {"index": 0, "message": message, "finish_reason": reason}
            self._send("application/json", json.dumps(common | {"object": "chat.completion", "choices": [choice], "usage": usage}))
            return
        delta = message | {"tool_calls": [call | {"index": 0} for call in message.get("tool_calls", ())]}
        chunks = [{"index": 0, "delta": delta, "finish_reason": None}], [{"index": 0, "delta": {}, "finish_reason": reason}]
        parts = [common | {"object": "chat.completion.chunk", "choices": choices} for choices in chunks]
        parts.append(common | {"object": "chat.completion.chunk", "choices": [], "usage": usage})
        self._send("text/event-stream", "".join(f"data: {json.dumps(part)}\n\n" for part in parts) + "data: [DONE]\n\n")

    def _send(self, kind: str, text: str) -> None:
        self.send_response(200)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(text.encode())))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def scripted_agent() -> Iterator[str]:
    """Yield the base URL of the fake."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1"
    finally:
        server.shutdown()
        server.server_close()
