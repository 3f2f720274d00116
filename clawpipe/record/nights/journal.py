"""The journal of a running night: writes the status file after every step, and notifies watchers."""

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

from clawpipe.core.store.files import write_atomic
from clawpipe.core.system.machine import as_clawpipe_error
from clawpipe.core.user_code.user_errors import LOG
from clawpipe.errors import ClawpipeError
from clawpipe.record.nights.files import LINEAGE
from clawpipe.record.nights.status import NightStatus, StepEntry, nothing_learnt, write_status


class Spent(BaseModel):
    """Time that a step took, and the step's key; None for a step that runs every night."""

    key: str | None
    seconds: float
    accelerator_seconds: float | None = None


class Spending(BaseModel):
    """Contents of times.json."""

    total: float = Field(default=0.0, description="seconds of all runs that did any work")
    steps: dict[str, Spent] = Field(default_factory=dict)


class Times:
    """Times of one night across its runs. A damaged file counts as empty, since times are no result."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / "times.json"
        self._begun = time.monotonic()
        self._known = self._read()
        self._earlier = self._known.total
        self._is_rerun = bool(self._known.total or self._known.steps)  # a run of under half a millisecond has a total of 0
        self._worked = False

    def with_work_time(self, entry: StepEntry) -> StepEntry:
        """Return the entry with the time of the run that did the work."""
        known, again = self._known.steps.get(entry.name), entry.state == "cached" or entry.key is None
        if again and known and known.key == entry.key:
            return entry.model_copy(update={"seconds": known.seconds, "accelerator_seconds": known.accelerator_seconds})
        self._worked = self._worked or not again
        if entry.state != "cached":
            spent = Spent(key=entry.key, seconds=entry.seconds, accelerator_seconds=entry.accelerator_seconds)
            self._known.steps[entry.name] = spent
        return entry

    def total(self) -> tuple[float, float | None]:
        """Return the seconds of all runs that did work, and the seconds of this run if it did none, else None."""
        run = round(time.monotonic() - self._begun, 3)
        if self._is_rerun and not self._worked:
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
    """Receives the progress of a night."""

    def started(self, step: str) -> None: ...
    def progress(self, step: str, done: float, total: float, note: str) -> None: ...
    def updated(self, step: str, metrics: Mapping[str, Any]) -> None: ...
    def warned(self, text: str) -> None: ...
    def finished(self, entry: StepEntry) -> None: ...


class NullWatcher:
    """A watcher that does nothing."""

    def started(self, step: str) -> None: ...
    def progress(self, step: str, done: float, total: float, note: str) -> None: ...
    def updated(self, step: str, metrics: Mapping[str, Any]) -> None: ...
    def warned(self, text: str) -> None: ...
    def finished(self, entry: StepEntry) -> None: ...


_watcher: ContextVar[Watcher] = ContextVar("watcher", default=NullWatcher())  # noqa: B039 - NullWatcher holds no state


@contextmanager
def watched_by(somebody: Watcher) -> Iterator[None]:
    """Let `somebody` watch the nights that start in this block."""
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
        """Add a watcher, after the existing ones."""
        self._watchers.append(watcher)

    def start(self, step: str) -> None:
        self._current = step
        for watcher in self._watchers:
            watcher.started(step)

    def progress(self, done: float, total: float, note: str = "") -> None:
        """Report that the current step has done `done` of `total`."""
        with self._lock:
            for watcher in self._watchers:
                watcher.progress(self._current, done, total, note)

    def update(self, metrics: Mapping[str, Any]) -> None:
        """Report an optimizer step of the current training step: its number, the total (`of`), and its metrics."""
        self.progress(metrics["step"], metrics["of"], f"loss {metrics['loss']:.3f}")
        for watcher in self._watchers:
            watcher.updated(self._current, metrics)

    def warn(self, text: str) -> None:
        """Report a warning to the watchers, and keep it in the status; the night goes on."""
        logging.getLogger(__name__).warning(text)
        self.status.warnings.append(text)
        self.save()
        for watcher in self._watchers:
            watcher.warned(text)

    def finish(self, entry: StepEntry) -> None:
        """Finish the current step. Its warnings and early signs are repeated when it was cached.

        Watchers get the time that the step took now; the status keeps the time of the run that did the work.
        """
        self.status.steps.append(self._times.with_work_time(entry))
        signs = [f"{entry.name}: {text}" for text in entry.details.get("signs", ())]
        gaming = entry.details.get("gaming", ())
        for text in filter(None, (*entry.details.get("warnings", ()), *signs, *gaming, nothing_learnt(entry), self._raised(entry))):
            self.warn(text)
        self.save()
        for watcher in self._watchers:
            watcher.finished(entry)

    def _raised(self, step: StepEntry) -> str | None:
        """Return a line about errors that the user's environment raised in the step, with the path of the log."""
        what, log = step.details.get("raised"), self.run_dir.parent.parent / "logs" / LOG
        return f"{step.name}: {what}; message, traceback and row are in {log}" if what else None

    @contextmanager
    def ended(self) -> Iterator[None]:
        """Record an error that ends the night within this block in the status, with its fix.

        A finished night keeps its verdict if another run of it fails before its first step.
        """
        try:
            yield
        except Exception as error:
            known = as_clawpipe_error(error)
            self.status.error = str(known or f"unexpected {type(error).__name__}: {error}")
            self.status.exit_code = known.exit_code if known else ClawpipeError.exit_code
            with suppress(OSError):  # the disk may be the problem
                if self.status.steps or not (self.run_dir / LINEAGE).exists():
                    self.save()
            raise

    def save(self) -> None:
        self.status.seconds, rerun = self._times.total()
        self.status.rerun_seconds = rerun if self.status.verdict else None  # without a verdict there may be work left
        write_status(self.status)
        self._times.save()
