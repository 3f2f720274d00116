"""Limit the number of connections of clawpipe's HTTP servers, their idle time, and their log lines."""

from __future__ import annotations

import asyncio
import logging
import socket
import time

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

MOST = 256  # connections at a time; each takes a file descriptor, of which a process usually has 1,024
HEAD_SECONDS = 10.0  # longest time between two requests, including the head of the second
AT_ONCE = 32  # connections that asyncio accepts in one turn of its loop; they count a few turns later, with more accepted by then
WAITING = 128  # connections that the kernel keeps until they are accepted
LOG_LINES = 300  # per minute, since clients decide how many there are


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


class BoundedServer(uvicorn.Server):
    """A server that accepts few connections at a time, while the kernel keeps more: asyncio has one number for both."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        for listener in sockets or ():
            listener.listen(WAITING)


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
