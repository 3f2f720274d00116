"""The journal of a running night: the status file after every step, and whoever watches is told."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import Any, Protocol

from pydantic import BaseModel, Field, ValidationError

from clawpipe.environments.raised import LOG
from clawpipe.machine import as_ours
from clawpipe.nights.record import LINEAGE, NightStatus, StepEntry, nothing_learnt, write_status
from clawpipe.store.files import write_atomic


class Spent(BaseModel):
    """Time that a step took, and what it was recorded under; None: it does the same every run."""

    key: str | None
    seconds: float


class Spending(BaseModel):
    """The file."""

    total: float = Field(default=0.0, description="seconds of all runs that did any work")
    steps: dict[str, Spent] = Field(default_factory=dict)


class Times:
    """The times of one night, from the start of a run on. A file that is damaged counts as none: times are no result."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / "times.json"
        self._begun = time.monotonic()
        self._known = self._read()
        self._earlier = self._known.total
        self._worked = False

    def told(self, entry: StepEntry) -> StepEntry:
        """The entry with the time that its work took, whichever run did it."""
        known, again = self._known.steps.get(entry.name), entry.state == "cached" or entry.key is None
        if again and known and known.key == entry.key:
            return entry.model_copy(update={"seconds": known.seconds})
        self._worked = self._worked or not again
        if entry.state != "cached":
            self._known.steps[entry.name] = Spent(key=entry.key, seconds=entry.seconds)
        return entry

    def total(self) -> tuple[float, float | None]:
        """Seconds of the runs that did the work, this one among them if it did any; else also those of this rerun."""
        run = round(time.monotonic() - self._begun, 3)
        if self._earlier and not self._worked:
            return self._earlier, run
        self._known.total = round(self._earlier + run, 3)
        return self._known.total, None

    def save(self) -> None:
        write_atomic(self._path, self._known.model_dump_json(indent=2).encode())

    def _read(self) -> Spending:
        try:
            return Spending.model_validate_json(self._path.read_bytes())
        except (OSError, ValidationError):
            return Spending()


class Watcher(Protocol):
    """Somebody who is told how a night gets on."""

    def started(self, step: str) -> None: ...
    def progress(self, step: str, done: float, total: float, note: str) -> None: ...
    def updated(self, step: str, facts: Mapping[str, Any]) -> None: ...
    def warned(self, text: str) -> None: ...
    def finished(self, entry: StepEntry) -> None: ...


class Silent:
    """Nobody watches."""

    def started(self, step: str) -> None: ...
    def progress(self, step: str, done: float, total: float, note: str) -> None: ...
    def updated(self, step: str, facts: Mapping[str, Any]) -> None: ...
    def warned(self, text: str) -> None: ...
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
        self._watchers = [watcher]
        self._current = ""
        self._times = Times(self.run_dir)
        self._lock = threading.Lock()

    @property
    def run_dir(self) -> Path:
        return Path(self.status.run_dir)

    def watch(self, watcher: Watcher) -> None:
        """Tell one more from now on, after those who are told already."""
        self._watchers.append(watcher)

    def start(self, step: str) -> None:
        self._current = step
        for watcher in self._watchers:
            watcher.started(step)

    def progress(self, done: float, total: float, note: str = "") -> None:
        """The current step has done `done` of `total`."""
        with self._lock:
            for watcher in self._watchers:
                watcher.progress(self._current, done, total, note)

    def update(self, facts: Mapping[str, Any]) -> None:
        """The current step, a training, has made an update: its number, how many there are (`of`), its metrics."""
        self.progress(facts["step"], facts["of"], f"loss {facts['loss']:.3f}")
        for watcher in self._watchers:
            watcher.updated(self._current, facts)

    def warn(self, text: str) -> None:
        """Something that does not stop the night but that its owner should know; kept in the status."""
        logging.getLogger(__name__).warning(text)
        self.status.warnings.append(text)
        self.save()
        for watcher in self._watchers:
            watcher.warned(text)

    def finish(self, entry: StepEntry) -> None:
        """The current step is done. Warnings come whether it ran now or was cached; that a training learnt nothing is one.

        Who watches is told the time that it took now; the status keeps the time of the run that did the work.
        """
        self.status.steps.append(self._times.told(entry))
        for text in filter(None, (*entry.details.get("warnings", ()), nothing_learnt(entry), self._raised(entry))):
            self.warn(text)
        self.save()
        for watcher in self._watchers:
            watcher.finished(entry)

    def _raised(self, step: StepEntry) -> str | None:
        """What the user's environment raised in it, and where all of it is."""
        what, log = step.details.get("raised"), self.run_dir.parent.parent / "logs" / LOG
        return f"{step.name}: {what}; message, traceback and row are in {log}" if what else None

    @contextmanager
    def ended(self) -> Iterator[None]:
        """An error that ends the night in this block stands in its status: what was wrong, and what helps.

        A finished night keeps its verdict where another try ends before its first step.
        """
        try:
            yield
        except Exception as error:
            self.status.error = str(as_ours(error) or f"unexpected {type(error).__name__}: {error}")
            with suppress(OSError):  # the disk may be what is wrong
                if self.status.steps or not (self.run_dir / LINEAGE).exists():
                    self.save()
            raise

    def save(self) -> None:
        self.status.seconds, rerun = self._times.total()
        self.status.rerun_seconds = rerun if self.status.verdict else None  # until then there may be work left
        write_status(self.status)
        self._times.save()
