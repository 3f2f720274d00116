"""Receivers on loopback."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from queue import SimpleQueue
from typing import Any

from clawpipe.core.system.ports import LOOPBACK, free_port


@dataclass
class Receiver:
    """A webhook's receiver: its address, what it got, and the code that it answers."""

    port: int
    code: int = 204
    got: SimpleQueue[dict[str, Any]] = field(default_factory=SimpleQueue)

    @property
    def url(self) -> str:
        return f"http://{LOOPBACK}:{self.port}/hooks"

    def all(self) -> list[dict[str, Any]]:
        return [self.got.get() for _ in range(self.got.qsize())]


@contextmanager
def receiving(port: int | None = None) -> Iterator[Receiver]:
    """A receiver that answers for the length of the block."""
    receiver = Receiver(port or free_port())

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            if receiver.code < 300:
                receiver.got.put(json.loads(body))
            self.send_response(receiver.code)
            self.send_header("location", f"{receiver.url}/elsewhere")
            self.end_headers()

        def log_message(self, *_: object) -> None: ...

    with ThreadingHTTPServer((LOOPBACK, receiver.port), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield receiver
        finally:
            server.shutdown()
            thread.join()
