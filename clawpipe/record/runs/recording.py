"""Record the run that this process makes: its beginning, steps and end; and its events as JSON lines in the night's logs."""

from __future__ import annotations

import datetime
import json
import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from clawpipe.core.store.home import Home
from clawpipe.core.system.machine import as_clawpipe_error
from clawpipe.errors import BusyError
from clawpipe.record.nights.journal import Journal, NullWatcher
from clawpipe.record.nights.status import StepEntry
from clawpipe.record.runs.record import ProcessId, Run, new_id, now_text, remove_record, renew_record, write_record

EVENTS = "night.jsonl"  # among a night's logs
_RENEW_SECONDS = 20.0
RUN_ID = "CLAWPIPE_RUN_ID"  # set by whoever starts a run and has to know its id before it has begun


class Recorder(NullWatcher):
    """Keeps a run's record up to date; watches the night's journal. A full disk must not end the night, so what cannot be written
    is left out."""

    def __init__(self, home: Home, run: Run) -> None:
        self._home, self.run = home, run
        self._events: Path | None = None

    def follow(self, journal: Journal) -> None:
        """Take part in the night that begins."""
        self.run.night, self.run.state = journal.status.night, "running"
        self._events = journal.run_dir / "logs" / EVENTS
        journal.watch(self)
        self._write()
        self._tell("night started")

    def started(self, step: str) -> None:
        self.run.step = step
        self._write()
        self._tell("step started", step=step)

    def updated(self, step: str, metrics: Mapping[str, Any]) -> None:
        self._tell("training step", step=step, metrics=dict(metrics))

    def warned(self, text: str) -> None:
        self._tell("warning", text=text)

    def finished(self, entry: StepEntry) -> None:
        rows = {"rows_in": entry.rows_in, "rows_out": entry.rows_out, "filtered": entry.filtered}
        self._tell("step ended", step=entry.name, state=entry.state, seconds=entry.seconds, **rows)
        if entry.name == "gate":
            self.run.verdict = entry.details["decision"]

    def end(self, state: str, why: str | None = None) -> None:
        """Write the run's end, unless it is written already."""
        if self.run.has_ended:
            return
        self.run = self.run.model_copy(update={"state": state, "why": why, "ended": now_text()})
        self._write()
        self._tell(f"night {state}", verdict=self.run.verdict, why=why)

    def withdraw(self) -> None:
        """Remove the record: the night has not begun, and Prefect has the run wait until its home is free."""
        self.run = self.run.model_copy(update={"state": "failed"})
        remove_record(self._home, self.run.id)

    def _write(self) -> None:
        with suppress(OSError):
            write_record(self._home, self.run)

    def _tell(self, event: str, **facts: Any) -> None:
        """Append an event to the night's log."""
        if self._events is None:
            return
        line = {"time": _precise(), "run": self.run.id, "night": self.run.night, "event": event, **facts}
        with suppress(OSError):
            self._events.parent.mkdir(parents=True, exist_ok=True)
            with self._events.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line, default=float) + "\n")


_current: ContextVar[Recorder | None] = ContextVar("recorder", default=None)


@contextmanager
def recorded(home: Home, facts: Mapping[str, Any]) -> Iterator[Recorder]:
    """Record a run for the length of the block, from its first moment; within the block of another one, go on with that.

    Args:
        facts: fields of `Run` that are known at its start.
    """
    if (outer := _current.get()) is not None:
        outer.run = outer.run.model_copy(update={name: value for name, value in facts.items() if name == "flow_run"})
        yield outer
        return
    now = datetime.datetime.now(datetime.UTC)
    own = os.environ.pop(RUN_ID, None) or new_id(now)  # of this process alone: what it starts are no runs of this id
    recorder = Recorder(home, Run(id=own, started=now.isoformat(timespec="seconds"), process=ProcessId.own(), **facts))
    write_record(home, recorder.run)
    token = _current.set(recorder)
    try:
        with _renewed(home, recorder.run.id), _ended(recorder):
            yield recorder
    finally:
        _current.reset(token)


@contextmanager
def _renewed(home: Home, run_id: str) -> Iterator[None]:
    """Renew the run's record from time to time, for those on other machines, who cannot look for its process."""
    over = threading.Event()

    def renew() -> None:
        while not over.wait(_RENEW_SECONDS):
            renew_record(home, run_id)

    threading.Thread(target=renew, name="renews the run's record", daemon=True).start()
    try:
        yield
    finally:
        over.set()


@contextmanager
def _ended(recorder: Recorder) -> Iterator[None]:
    """Record how the block ends."""
    try:
        yield
    except BusyError as error:
        if recorder.run.started_by == "deployment" and recorder.run.state == "starting":
            recorder.withdraw()
        recorder.end("failed", error.what.splitlines()[0])
        raise
    except Exception as error:
        known = as_clawpipe_error(error)
        recorder.end("failed", (known.what if known else f"unexpected {type(error).__name__}: {error}").splitlines()[0])
        raise
    except BaseException:  # an interrupt, or the end that Prefect asks for
        recorder.end("stopped", "interrupted")
        raise
    recorder.end("completed")


def _precise() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")
