"""A ledger that several homes share: rows in numbered places, of which each is filled once."""

from __future__ import annotations

import uuid
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from clawpipe.core.ledger.base import Entry, Logged
from clawpipe.core.store.files import exclusive
from clawpipe.core.store.permissions import make_shared, share
from clawpipe.core.system import faults
from clawpipe.errors import BusyError, DataError

_SELF = "ledger"  # the log whose first row names the ledger


class _Self(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    id: str


@dataclass(frozen=True)
class Row:
    """One entry in a log.

    Args:
        place: number of the row in its log, from 0.
        name: unique among the log's rows.
        pending: whether it has begun and not ended.
        carried: time of an entry that came from a home's own files; empty for others.
        entry: as JSON.
    """

    place: int
    name: str
    pending: bool
    carried: str
    entry: str


@dataclass(frozen=True)
class Carried:
    """An entry from a home's own files; see `Row`."""

    name: str
    entry: str
    time: str
    pending: bool = False


class SharedLedger(ABC):
    """The logs, on what a database or a storage of objects does: create a row in a place unless it is taken."""

    shared = True
    kind: str

    @property
    @abstractmethod
    def where(self) -> str: ...

    @abstractmethod
    def lock(self, what: str) -> AbstractContextManager[object]: ...

    @abstractmethod
    def rows(self, log: str) -> list[Row]:
        """Return all rows, in the order of their places; none of a log that nobody has written to."""

    @abstractmethod
    def insert(self, log: str, row: Row) -> bool:
        """Create a row durably. False if its place or its name is taken."""

    @abstractmethod
    def mark_settled(self, log: str, row: Row) -> None: ...

    @abstractmethod
    def delete(self, log: str, row: Row) -> None: ...

    def identity(self) -> str:
        while not (found := self.read(_SELF, _Self).entries):  # another home may be first
            self.insert(_SELF, Row(0, _SELF, False, "", _Self(id=uuid.uuid4().hex[:12]).model_dump_json()))
        return f"{self.kind}:{found[0].id}"

    def read(self, log: str, kind: type[Entry]) -> Logged[Entry]:
        rows = self.rows(log)
        settled = [row for row in rows if not row.pending]
        carried = sorted((row for row in settled if row.carried), key=lambda row: row.carried)
        made = [*carried, *(row for row in settled if not row.carried)]  # what homes brought along is older
        return Logged(self._parse(log, made, kind), self._parse(log, [row for row in rows if row.pending], kind), _end(rows))

    def append(self, log: str, entry: BaseModel) -> None:
        row = Row(_end(self.rows(log)), uuid.uuid4().hex, False, "", entry.model_dump_json())
        while not self.insert(log, row):  # another home was faster
            row = replace(row, place=row.place + 1)

    def carry(self, log: str, entries: Iterable[Carried]) -> None:
        """Add entries from a home's own files, each once. The caller holds the lock."""
        rows = self.rows(log)
        known, end = {row.name for row in rows}, _end(rows)
        for found in entries:
            if found.name not in known:
                if not self.insert(log, Row(end, found.name, found.pending, found.time, found.entry)):
                    raise self._changed(log)
                faults.kill_point("ledger.carry", log)
                end += 1

    def begin(self, log: str, topic: str, name: str, entry: BaseModel, after: int) -> None:
        if not self.insert(log, Row(after, name, True, "", entry.model_dump_json())):
            raise self._changed(log)

    def settle(self, log: str, topic: str, name: str, entry: BaseModel) -> None:
        self.mark_settled(log, self._pending(log, name))
        faults.kill_point("promote.after_log")

    def cancel(self, log: str, topic: str, name: str) -> None:
        self.delete(log, self._pending(log, name))

    def _changed(self, log: str) -> BusyError:
        return BusyError(f"another home has changed the log of {log} meanwhile", self.where, "try again")

    def _pending(self, log: str, name: str) -> Row:
        found = next((row for row in self.rows(log) if row.pending and row.name == name), None)
        if found is None:
            raise BusyError(f"another home has ended this entry of {log}", self.where, "look at what is in service, then try again")
        return found

    def _parse(self, log: str, rows: Iterable[Row], kind: type[Entry]) -> list[Entry]:
        found = []
        for row in rows:
            try:
                found.append(kind.model_validate_json(row.entry))
            except ValidationError as error:
                raise DataError(f"entry {row.place} of {log} is damaged: {error.errors()[0]['msg']}", self.where) from None
        return found


@contextmanager
def disk_lock(path: Path, what: str) -> Iterator[None]:
    """Hold a lock file that is as open to a group as the directory it lies in."""
    make_shared(path.parent)
    if not path.exists():
        path.touch()
        share(path)
    with exclusive(path, f"the ledger of {what}", wait=True):
        yield


def _end(rows: list[Row]) -> int:
    return rows[-1].place + 1 if rows else 0
