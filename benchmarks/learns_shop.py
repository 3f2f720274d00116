"""The shop for an agent of benchmarks/learns.py: its tools behind HTTP, its questions as tasks, and what the agent begins with."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.core.conversation.messages import Message, ToolCall
from clawpipe.play.environments.shop import ShopEnvironment
from clawpipe.play.environments.shop_tools import Shop, ToolError
from clawpipe.serve.serving.conversation import call_body

QUESTIONS = 1280  # of which the environment `agent` holds out three in ten


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        with closing(Shop(0)) as shop:
            try:
                status, told = 200, shop.execute(ToolCall("", asked["name"], asked["arguments"]))
            except ToolError as error:
                status, told = 422, str(error)
        body = json.dumps({"result": told}).encode()
        self.send_response(status, told)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@contextmanager
def shop(port: int = 0) -> Iterator[str]:
    """Serve the tools on loopback, and give their address."""
    with ThreadingHTTPServer(("127.0.0.1", port), _Handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def write_tasks(folder: Path) -> dict[str, str]:
    """Write tasks.jsonl and shown.json into a folder; return their paths by name."""
    environment = ShopEnvironment()
    items = [item for split in ("train", "heldout") for item in environment.items(split, QUESTIONS // 2, 0)]
    tasks = ({"prompt": item.messages[-1].content, "slice": item.slice.split("/")[-1], **_wanted(item.truth)} for item in items)
    shown = {
        "messages": [_body(message) for message in environment.preamble()],
        "tools": [tool.as_function() for tool in environment.tools()],
    }
    files = {"tasks": folder / "tasks.jsonl", "shown": folder / "shown.json"}
    files["tasks"].write_text("".join(f"{json.dumps(task)}\n" for task in tasks))
    files["shown"].write_text(json.dumps(shown))
    return {name: str(file) for name, file in files.items()}


def _wanted(truth: str) -> JsonObject:
    return {"answer": f"The answer is {json.loads(truth)['result']}.", "check": "normalized"}


def _body(message: Message) -> JsonObject:
    """Return a message as an agent sends it."""
    calls = {"tool_calls": [call_body(call) for call in message.tool_calls]} if message.tool_calls else {}
    named = {"tool_call_id": message.tool_call_id} if message.tool_call_id else {}
    return {"role": message.role, "content": message.content} | calls | named
