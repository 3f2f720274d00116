"""The record of a run, that is of one execution of a night by one process: who runs it, since when, and how it ended.

run-records/<id>.json   written by the run's own process alone
run-records/<id>.stop   made by whoever asks the run to stop

A record never says that its run is alive: whether its process is there decides that, so a killed run needs nobody to note its end.
A process on another machine or in another container cannot be looked for: there the record's time decides, which the run renews.
Ids begin with the time of their start, so the newest runs are found by their names.
"""

from __future__ import annotations

import datetime
import os
import secrets
import socket
import time
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Literal, get_args

import psutil
from pydantic import BaseModel, Field

from clawpipe.core.store.files import write_atomic
from clawpipe.core.store.home import Home
from clawpipe.errors import DataError, NotFoundError

State = Literal["pending", "starting", "running", "stopping", "stopped", "completed", "failed"]
STATES: tuple[State, ...] = get_args(State)
ENDED = ("stopped", "completed", "failed")
_RECORD, _REQUEST = ".json", ".stop"
_SILENT_SECONDS = 180.0  # after so long a run of another machine is taken for dead
_SAME_START = 2.0  # seconds by which two readings of one process's start may differ, since the clock is corrected meanwhile


class ProcessId(BaseModel):
    """A process for good: numbers are used again, but not by one that started at the same time.

    Attributes:
        space: within which a number is of one process. Two containers may have one host name, and two machines as well.
    """

    host: str
    space: str = ""
    number: int
    started: float = Field(description="seconds since 1970")

    @classmethod
    def own(cls) -> ProcessId:
        """Return the identity of this process."""
        return cls.of(os.getpid())

    @classmethod
    def of(cls, number: int) -> ProcessId:
        """Return the identity of a process of this machine, which must be there or be a child that nobody has waited for."""
        return cls(host=socket.gethostname(), space=_space(), number=number, started=psutil.Process(number).create_time())

    @property
    def is_here(self) -> bool:
        return self.host == socket.gethostname() and self.space in ("", _space())  # older records name no space

    def find(self) -> psutil.Process | None:
        """Return the process; None if it has ended, or another one has its number."""
        try:
            process = psutil.Process(self.number)
            same = abs(process.create_time() - self.started) < _SAME_START
            return process if same and process.status() != psutil.STATUS_ZOMBIE else None
        except psutil.NoSuchProcess:
            return None


@cache
def _space() -> str:
    """Return what tells this boot of the kernel, and this space of process numbers, from others; "" where Linux does not say."""
    try:
        return f"{Path('/proc/sys/kernel/random/boot_id').read_text().strip()} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return ""


class Run(BaseModel):
    """One execution of a night. What its process wrote, and what follows from whether that process is there."""

    id: str
    night: str = Field(default="", description="the night's id; empty until a deployed run has read its settings")
    model: str = Field(default="", description="name of the registered model that the night is for")
    config: str = ""
    overrides: list[str] = Field(default_factory=list)
    started_by: Literal["hand", "deployment"] = "hand"
    flow_run: str | None = Field(default=None, description="id of the run in Prefect")
    process: ProcessId | None = Field(default=None, description="None: it waits in Prefect's queue, or ran before runs had records")
    started: str = Field(default="", description="ISO 8601, UTC")
    ended: str | None = Field(default=None, description="ISO 8601, UTC")
    state: State = "starting"
    step: str | None = Field(default=None, description="the step that runs, or ran last")
    verdict: str | None = None
    why: str | None = Field(default=None, description="why it failed or was stopped, in one line")

    @property
    def has_ended(self) -> bool:
        return self.state in ENDED


def records(home: Home) -> Path:
    """Return the directory of the records of a home."""
    return home.root / "run-records"


def new_id(now: datetime.datetime) -> str:
    """Return an id that sorts by its time (UTC): `20261125T020000-3f9c`, with enough chance in it for runs of one second."""
    return f"{now:%Y%m%dT%H%M%S}-{secrets.token_hex(2)}"


def now_text() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


def write_record(home: Home, run: Run) -> None:
    write_atomic(records(home) / f"{run.id}{_RECORD}", run.model_dump_json(indent=2).encode())


def renew_record(home: Home, run_id: str) -> None:
    """Show those on other machines that the run lives; nothing if its record is gone."""
    with suppress(OSError):
        os.utime(records(home) / f"{run_id}{_RECORD}")


def remove_record(home: Home, run_id: str) -> None:
    (records(home) / f"{run_id}{_RECORD}").unlink(missing_ok=True)


def read_record(home: Home, run_id: str) -> Run:
    """Return a recorded run, with the state that follows from its process and from whether it was asked to stop.

    Raises:
        NotFoundError: there is none, or no more.
        DataError: the file is damaged.
    """
    path = records(home) / f"{run_id}{_RECORD}"
    try:
        return _judged(home, Run.model_validate_json(path.read_bytes()), path.stat().st_mtime)
    except FileNotFoundError:
        raise NotFoundError(f"no run {run_id!r}", str(home.root), "`clawpipe runs list` shows the runs of this home") from None
    except ValueError as error:
        raise DataError(
            f"the record of the run is damaged: {error}", str(path), "remove the file; its night is not touched"
        ) from None


def record_ids(home: Home) -> list[str]:
    """Return the ids of all recorded runs, the newest first."""
    try:
        names = [entry.name for entry in records(home).iterdir()]
    except FileNotFoundError:
        return []
    return sorted((name.removesuffix(_RECORD) for name in names if name.endswith(_RECORD) and name[0] != "."), reverse=True)


def ask_to_stop(home: Home, run: Run) -> None:
    """Note that the run is to stop, so that its end is told as that and not as a failure."""
    write_atomic(records(home) / f"{run.id}{_REQUEST}", now_text().encode(), mode=0o600)


def is_asked_to_stop(home: Home, run_id: str) -> bool:
    return (records(home) / f"{run_id}{_REQUEST}").exists()


def _now(home: Home) -> float:
    """Return the time by the clock that dates the files of the home: on a shared disk another one than this machine's."""
    with suppress(OSError):
        (clock := records(home) / ".clock").touch()
        return clock.stat().st_mtime
    return time.time()


def _judged(home: Home, run: Run, heard: float) -> Run:
    """Return a run with the state that follows; `heard` is when its record was last renewed, in seconds since 1970."""
    asked = is_asked_to_stop(home, run.id)
    if run.state == "failed" and asked:
        run.state, run.why = "stopped", "it was asked to stop"
    if run.has_ended or run.process is None:
        return run
    if run.process.find() if run.process.is_here else _now(home) - heard < _SILENT_SECONDS:
        run.state = "stopping" if asked else run.state
        return run
    gone = "its process is gone" if run.process.is_here else f"nothing is heard of it any more on {run.process.host}"
    run.state = "stopped" if asked else "failed"
    run.why = "it was asked to stop" if asked else f"{gone}; the same command goes on where it was"
    return run
