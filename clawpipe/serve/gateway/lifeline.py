"""An idle connection to an engine, by whose end the gateway learns that the engine has ended.

Whatever was found out of an engine holds until it is started anew, which may take less time than lies between two requests or two
looks. So one connection is kept open, on which nothing is sent: it ends when the engine's process does.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress

_AT_ONCE_SECONDS = 0.1  # no engine starts in this time: one that answers within it has only closed an idle connection
_CONNECT_SECONDS, _SHORT_SECONDS = 5.0, 1.0


class Lifeline:
    """Holds a connection.

    Args:
        host, port: the engine's.
        answers: whether the engine answers a request.
        lost: called when the engine has ended; then nothing is held until `hold` is called again.
    """

    def __init__(self, host: str, port: int, answers: Callable[[], Awaitable[bool]], lost: Callable[[], None]) -> None:
        self._host, self._port, self._answers, self._lost = host, port, answers, lost
        self._task: asyncio.Task[None] | None = None

    async def hold(self) -> None:
        """Connect, and hold the connection from now on. Returns once it stands, or cannot be had."""
        if self._task is None or self._task.done():
            stands = asyncio.Event()
            self._task = asyncio.create_task(self._run(stands))
            await stands.wait()

    async def close(self) -> None:
        if self._task:
            self._task.cancel()
            await asyncio.wait((self._task,))

    async def _run(self, stands: asyncio.Event) -> None:
        alive = True
        while alive:
            began = time.monotonic()
            alive = await self._held(stands) and await self._answers_at_once()
            if alive and time.monotonic() - began < _SHORT_SECONDS:
                await asyncio.sleep(_SHORT_SECONDS)  # something closes each idle connection soon
        self._lost()

    async def _held(self, stands: asyncio.Event) -> bool:
        """Hold one connection until it ends. Returns False if there is none."""
        try:
            async with asyncio.timeout(_CONNECT_SECONDS):
                reader, writer = await asyncio.open_connection(self._host, self._port)
        except (OSError, TimeoutError):
            return False
        finally:
            stands.set()
        try:
            with suppress(OSError):
                while await reader.read(1024):
                    pass
        finally:
            writer.close()
        return True

    async def _answers_at_once(self) -> bool:
        with suppress(TimeoutError):
            async with asyncio.timeout(_AT_ONCE_SECONDS):
                return await self._answers()
        return False
