"""Trials of models that go on while their client waits for other things: a local model may load longer than a client's patience."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from concurrent.futures import Future, wait
from dataclasses import dataclass, field

from clawpipe.core.basics.json_types import JsonObject


@dataclass
class Trials:
    """Runs one trial after the other in the background, and keeps each result until it is asked for."""

    _alone: threading.Lock = field(default_factory=threading.Lock)  # two local models at once would need twice the memory
    _known: dict[Hashable, Future[JsonObject]] = field(default_factory=dict)
    _changes: threading.Lock = field(default_factory=threading.Lock)

    def answer(self, key: Hashable, work: Callable[[], JsonObject], seconds: float) -> JsonObject | None:
        """Return what a trial found, and forget it; None if it is not done within `seconds`.

        Args:
            key: what makes two trials the same. One that is under way is waited for and not begun again.

        Raises:
            ClawpipeError: what `work` raised.
        """
        with self._changes:
            future = self._known.get(key) or self._begun(key, work)
        wait([future], timeout=seconds)
        if not future.done():
            return None
        with self._changes:
            self._known.pop(key, None)
        return future.result()

    def _begun(self, key: Hashable, work: Callable[[], JsonObject]) -> Future[JsonObject]:
        future = self._known[key] = Future()
        threading.Thread(target=self._run, args=(future, work), daemon=True).start()  # it does not keep the server from ending
        return future

    def _run(self, future: Future[JsonObject], work: Callable[[], JsonObject]) -> None:
        with self._alone:
            try:
                future.set_result(work())
            except BaseException as error:
                future.set_exception(error)
