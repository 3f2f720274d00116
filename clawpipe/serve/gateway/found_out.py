"""Remember what was found out of an engine, by model, until the engine may be another one."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable

from clawpipe.serve.gateway.capabilities import UNKNOWN, Capabilities

log = logging.getLogger("clawpipe.gateway")
_AGAIN_SECONDS = 30.0  # until a model that did not answer, or of which somebody is in doubt, is asked again
_MOST_NAMES = 256  # that are remembered; clients may ask for any name
_AT_ONCE, _A_MINUTE = 4, 30  # models that are asked

Probe = Callable[[str], Awaitable[Capabilities | None]]


class FoundOut:
    """The capabilities of one engine.

    Args:
        url: the engine's, for the log.
        probe: finds out the capabilities with a model; None: it did not answer.

    Attributes:
        lacking: routes that the engine does not have.
    """

    def __init__(self, url: str, probe: Probe) -> None:
        self._url, self._probe = url, probe
        self.lacking: set[str] = set()
        self._found: dict[str, Capabilities] = {}  # the one that was used last is last
        self._asked: dict[str, float] = {}  # when a model was asked; the one that was asked last is last
        self._asking: dict[str, asyncio.Task[None]] = {}
        self._places = asyncio.Semaphore(_AT_ONCE)
        self._minute: deque[float] = deque()

    def __bool__(self) -> bool:
        """Whether anything is remembered that would be wrong of another engine."""
        return any(found.tokens for found in self._found.values())

    async def of(self, model: str) -> Capabilities:
        """Return the capabilities with a model; `UNKNOWN` where they cannot be found out now."""
        if known := self._found.pop(model, None):
            self._found[model] = known
            return known
        if task := self._ask(model):
            await asyncio.wait((task,))
        return self._found.get(model, UNKNOWN)

    def current(self, model: str, found: Capabilities) -> Capabilities:
        """Return capabilities that were found before an answer began, or `UNKNOWN` if the engine may be another one since."""
        return found if not found.tokens or self._found.get(model) == found else UNKNOWN

    def forget(self, why: str) -> None:
        """Forget all: the engine may be another one."""
        if self._found:
            log.info("the engine at %s is asked anew what it says of its tokens: %s", self._url, why)
        self._found.clear()
        self.lacking.clear()
        self._asked.clear()
        for task in self._asking.values():  # they asked the engine of before
            task.cancel()

    def doubt(self, model: str) -> None:
        """Ask for a model anew; until it has answered, what is known of it holds."""
        self._ask(model)

    def _ask(self, model: str) -> asyncio.Task[None] | None:
        """Return the task that finds out the capabilities with a model; None if it was asked just now, or too many are asked."""
        now = time.monotonic()
        while self._minute and self._minute[0] < now - 60:
            self._minute.popleft()
        if model in self._asking:
            return self._asking[model]
        if now - self._asked.get(model, float("-inf")) < _AGAIN_SECONDS or len(self._minute) >= _A_MINUTE:
            return None
        self._minute.append(now)
        self._asked.pop(model, None)
        self._asked[model] = now
        _bound(self._asked)
        task = self._asking[model] = asyncio.create_task(self._find_out(model))
        task.add_done_callback(lambda done: self._asking.pop(model) if self._asking.get(model) is done else None)
        return task

    async def _find_out(self, model: str) -> None:
        async with self._places:
            found = await self._probe(model)
        if found and found != self._found.get(model):
            self._found[model] = found
            _bound(self._found)
            log.info("model %.100r at %s: %s", model, self._url, found)


def _bound(names: dict[str, float] | dict[str, Capabilities]) -> None:
    while len(names) > _MOST_NAMES:
        del names[next(iter(names))]
