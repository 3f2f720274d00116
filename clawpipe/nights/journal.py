"""The journal of a running night: the status file after every step, and whoever watches is told."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Protocol

from clawpipe.nights.record import NightStatus, StepEntry, write_status


class Watcher(Protocol):
    """Somebody who is told how a night gets on."""

    def started(self, step: str) -> None: ...
    def progress(self, step: str, done: float, total: float, note: str) -> None: ...
    def finished(self, entry: StepEntry) -> None: ...


class Silent:
    """Nobody watches."""

    def started(self, step: str) -> None: ...
    def progress(self, step: str, done: float, total: float, note: str) -> None: ...
    def finished(self, entry: StepEntry) -> None: ...


_watcher: ContextVar[Watcher] = ContextVar("watcher", default=Silent())  # noqa: B039 - Silent holds no state


@contextmanager
def watched_by(somebody: Watcher) -> Iterator[None]:
    """Nights that start in this block are watched."""
    token = _watcher.set(somebody)
    try:
        yield
    finally:
        _watcher.reset(token)


def watcher() -> Watcher:
    return _watcher.get()


class Journal:
    """Keeps `status` and its file up to date. Progress may be reported from any thread."""

    def __init__(self, status: NightStatus, watcher: Watcher) -> None:
        self.status = status
        self._watcher = watcher
        self._current = ""
        self._begun = time.monotonic()
        self._lock = threading.Lock()

    @property
    def run_dir(self) -> Path:
        return Path(self.status.run_dir)

    def start(self, step: str) -> None:
        self._current = step
        self._watcher.started(step)

    def progress(self, done: float, total: float, note: str = "") -> None:
        """The current step has done `done` of `total`."""
        with self._lock:
            self._watcher.progress(self._current, done, total, note)

    def finish(self, entry: StepEntry) -> None:
        self.status.steps.append(entry)
        self.save()
        self._watcher.finished(entry)

    def save(self) -> None:
        self.status.seconds = round(time.monotonic() - self._begun, 3)
        write_status(self.status)
