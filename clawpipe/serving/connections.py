"""Connections of people who need not know the key: nobody keeps others out by saying nothing.

uvicorn ends a kept-alive connection that is silent, but waits for ever for the rest of a request's head; and where it limits
connections, it answers the newest with 503, however long the others have been saying nothing.
"""

from __future__ import annotations

import asyncio

from uvicorn.protocols.http.h11_impl import H11Protocol

MOST = 256  # at a time; each takes a file descriptor, of which a process usually has 1,024
HEAD_SECONDS = 10.0  # between two requests, the head of the second included


class Connection(H11Protocol):
    """One that ends when no request comes, or when another needs its place."""

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
        """No request is under way: what comes is part of a head, or of a body that nobody reads."""
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
