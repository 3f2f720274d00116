"""The ledger of one home: a file of JSON Lines for each log, and a file for each move that has begun."""

from __future__ import annotations

import os
from contextlib import AbstractContextManager
from pathlib import Path

from pydantic import BaseModel

from clawpipe.core.ledger.base import Entry, Logged
from clawpipe.core.store.files import exclusive, fsync
from clawpipe.core.store.home import Home
from clawpipe.core.store.identity import home_id
from clawpipe.core.store.log import AppendLog
from clawpipe.core.system import faults
from clawpipe.errors import BusyError


class HomeLedger:
    """Logs in `<log>.jsonl` of a home.

    Args:
        home: that holds the files.
        shared: whether another home writes there, for example that of a sweep's trials.
    """

    def __init__(self, home: Home, shared: bool = False) -> None:
        self.shared, self.where, self._home = shared, str(home.root), home

    def identity(self) -> str:
        return f"home:{home_id(self._home)}"

    def lock(self, what: str) -> AbstractContextManager[object]:
        return exclusive(self._home.locks / f"{what}.lock", f"the ledger of {what}", wait=True)

    def read(self, log: str, kind: type[Entry]) -> Logged[Entry]:
        entries = AppendLog(self._log(log), kind).read()
        notes = sorted(self._home.root.glob(f"{log}.*.pending.json"))
        return Logged(entries, [kind.model_validate_json(note.read_bytes()) for note in notes], len(entries))

    def append(self, log: str, entry: BaseModel) -> None:
        AppendLog(self._log(log), type(entry)).append(entry)

    def begin(self, log: str, topic: str, name: str, entry: BaseModel, after: int) -> None:
        if len(AppendLog(self._log(log), type(entry)).read()) != after:
            raise BusyError(f"the log of {log} has changed meanwhile", str(self._log(log)), "try again")
        note = self._note(log, topic)
        staging = note.with_name(f".{note.name}")  # which the next holder of the lock overwrites
        staging.write_text(entry.model_dump_json(), encoding="utf-8")
        fsync(staging)
        os.replace(staging, note)
        fsync(self._home.root)

    def settle(self, log: str, topic: str, name: str, entry: BaseModel) -> None:
        file = AppendLog(self._log(log), type(entry))
        if entry not in file.read():
            file.append(entry)
        faults.kill_point("promote.after_log")
        self._note(log, topic).unlink()

    def cancel(self, log: str, topic: str, name: str) -> None:
        self._note(log, topic).unlink()

    def _log(self, log: str) -> Path:
        return self._home.root / f"{log}.jsonl"

    def _note(self, log: str, topic: str) -> Path:
        return self._home.root / f"{log}.{topic}.pending.json"
