"""The server process: start, serve, and stop on request."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import socket
import time
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from clawpipe.json_types import Options
from clawpipe.services.web import THIS_MACHINE, SameOrigin
from clawpipe.serving.access import is_loopback
from clawpipe.serving.app import create_app
from clawpipe.serving.engine_thread import EngineThread
from clawpipe.serving.policy import ServedPolicy

MOST = 256  # connections at a time; each takes a file descriptor, of which a process usually has 1,024
HEAD_SECONDS = 10.0  # longest time between two requests, including the head of the second
GRACE_SECONDS = 3.0  # for running answers when the server stops
_BACKLOG = 128  # connections accepted at once; there must be file descriptors for them
_LOG_LINES = 300  # per minute, since clients decide how many there are
_TEAR_OFF_SECONDS = 10  # then uvicorn ends the remaining answers, with a traceback for each


class Connection(H11Protocol):
    """A connection that ends when no request comes in time, or when a newer one needs its place."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        super().connection_made(transport)
        self._since = self.loop.time()
        self._end: asyncio.TimerHandle | None = None
        self._watch()
        if len(self.connections) > MOST:
            waiting = [other for other in self.connections if isinstance(other, Connection) and other.waits]
            self._give_up(min(waiting, key=lambda other: other._since))

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch()

    def on_response_complete(self) -> None:
        self._since = self.loop.time()
        super().on_response_complete()
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._end is not None:
            self._end.cancel()
        super().connection_lost(exc)

    @property
    def waits(self) -> bool:
        """Whether no request is being answered: incoming data are part of a head, or of a body that is not read."""
        return self.cycle is None or self.cycle.response_complete

    def _watch(self) -> None:
        if not self.waits and self._end is not None:
            self._end.cancel()
            self._end = None
        elif self.waits and self._end is None:
            self._end = self.loop.call_later(HEAD_SECONDS, self._give_up, self)

    def _give_up(self, connection: Connection) -> None:
        self.connections.discard(connection)
        connection.transport.abort()


class Server(uvicorn.Server):
    """A uvicorn server that cancels answers which outlast the grace period when it stops, and tells their clients.

    Args:
        hosts: names under which it may be reached; None allows all.
    """

    def __init__(self, policy: ServedPolicy, key: str, hosts: frozenset[str] | None = THIS_MACHINE, **options: Any) -> None:
        self._thread = EngineThread()
        app = SameOrigin(create_app(policy, key, self._thread), hosts)
        settings: Options = {"http": Connection, "ws": "none", "server_header": False}
        settings |= {"backlog": _BACKLOG, "timeout_graceful_shutdown": _TEAR_OFF_SECONDS, **options}
        super().__init__(uvicorn.Config(app, **settings))
        few = FewLines(_LOG_LINES)
        for name in ("uvicorn.access", "uvicorn.error"):
            logging.getLogger(name).addFilter(few)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        asyncio.get_running_loop().call_later(GRACE_SECONDS, self._thread.cancel)
        await super().shutdown(sockets)


def serve(policy: ServedPolicy, key: str, listener: socket.socket) -> None:
    """Serve until SIGTERM or Ctrl-C."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # uvicorn re-raises the signal: a stop is no crash
    with contextlib.suppress(KeyboardInterrupt):
        Server(policy, key, THIS_MACHINE if is_loopback(listener.getsockname()[0]) else None).run([listener])


class FewLines(logging.Filter):
    """Passes a number of lines per minute, and reports in the next minute how many it dropped."""

    def __init__(self, lines: int) -> None:
        super().__init__()
        self._lines, self._minute, self._count = lines, 0, 0

    def filter(self, record: logging.LogRecord) -> bool:
        minute, before = int(time.monotonic() // 60), self._count - self._lines
        if minute != self._minute:
            self._minute, self._count = minute, 0
            if before > 0:
                logging.getLogger("uvicorn.error").warning("%d lines of a minute are not shown", before)
        self._count += 1
        return self._count <= self._lines
