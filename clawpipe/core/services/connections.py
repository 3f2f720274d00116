"""Limit the number of connections of clawpipe's HTTP servers, how long they are idle or not read, and their log lines."""

from __future__ import annotations

import asyncio
import logging
import resource
import socket
import time
from types import FrameType

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from clawpipe.errors import ConfigError

MOST = 256  # connections at a time; each takes a file descriptor, of which a process usually has 1,024
READ_SECONDS = 60.0  # longest time in which a client takes nothing of what waits for it
HEAD_SECONDS = 10.0  # longest time between two requests, including the head of the second
AT_ONCE = 32  # connections that asyncio accepts in one turn of its loop; they count a few turns later, with more accepted by then
WAITING = 128  # connections that the kernel keeps until they are accepted
LOG_LINES = 300  # per minute, since clients decide how many there are
_OTHER_FILES = 64  # that a server has open beside connections


class Connection(H11Protocol):
    """A connection that ends when no request comes in time, when its client reads nothing of an answer, or when a newer one needs
    its place.

    Attributes:
        most: connections at a time.
    """

    most = MOST

    def connection_made(self, transport: asyncio.Transport) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        super().connection_made(transport)
        self._since = self.loop.time()
        self._end: asyncio.TimerHandle | None = None
        self._unread: asyncio.TimerHandle | None = None
        self._watch()
        if len(self.connections) > self.most:
            waiting = [other for other in self.connections if isinstance(other, Connection) and other.waits]
            self._give_up(min(waiting, key=lambda other: other._since))

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch()

    def on_response_complete(self) -> None:
        self._since = self.loop.time()
        super().on_response_complete()
        self._watch()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._unread = self._unread or self.loop.call_later(READ_SECONDS, self._give_up, self)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None

    def connection_lost(self, exc: Exception | None) -> None:
        for timer in (self._end, self._unread):
            if timer is not None:
                timer.cancel()
        super().connection_lost(exc)

    @property
    def waits(self) -> bool:
        """Whether no request is being answered: incoming data are part of a head, or of a body that is not read."""
        return self.cycle is None or self.cycle.response_complete  # pyright: ignore[reportUnnecessaryComparison]  # None before the first

    def _watch(self) -> None:
        if not self.waits and self._end is not None:
            self._end.cancel()
            self._end = None
        elif self.waits and self._end is None:
            self._end = self.loop.call_later(HEAD_SECONDS, self._give_up, self)

    def _give_up(self, connection: Connection) -> None:
        self.connections.discard(connection)
        connection.transport.abort()


def connections_beside(answers: int) -> type[Connection]:
    """Return a connection for a server that answers so many requests at a time, and tells others that it cannot: these need
    connections, too, and each answer one to an engine. Raises the process's limit of open files as far as it may.

    Raises:
        ConfigError: the process may not open as many files.
    """
    wanted, needed = 4 * max(answers, MOST), 2 * answers + _OTHER_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    files = max(soft, wanted + needed) if hard == resource.RLIM_INFINITY else min(hard, max(soft, wanted + needed))
    if files < needed + answers // 4:
        what = f"{answers} answers at a time need {needed + answers // 4} open files, and the limit is {files}"
        raise ConfigError(what, "--at-once", "raise the limit (`ulimit -Hn`), or answer fewer")
    resource.setrlimit(resource.RLIMIT_NOFILE, (files, hard))
    return type("BoundedConnection", (Connection,), {"most": min(wanted, files - answers - _OTHER_FILES)})


class BoundedServer(uvicorn.Server):
    """A server that accepts few connections at a time, while the kernel keeps more: asyncio has one number for both."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        for listener in sockets or ():
            listener.listen(WAITING)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Stop; a second Ctrl-C on the way would end in a traceback, and no sooner."""
        if not self.should_exit:
            super().handle_exit(sig, frame)


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
