"""Decisions in a home of one machine: a database in the home."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import astuple, fields, replace
from pathlib import Path
from typing import Any

from clawpipe.core.store.sqlite import closed_with, open_shared
from clawpipe.errors import DataError
from clawpipe.record.reviews.decisions import Decision, Decisions, require_seen

_COLUMNS = "number, row_id, verdict, by, at, reason, turn, text"
_TABLE = """create table if not exists decisions (
    number integer primary key autoincrement, row_id text not null, verdict text not null, by text not null, at text not null,
    reason text not null, turn integer, text text
)"""
_EVERY = f"select {_COLUMNS} from decisions order by number"
_OF_ROW = f"select {_COLUMNS} from decisions where row_id = ? order by number"
_ADD = "insert into decisions (row_id, verdict, by, at, reason, turn, text) values (?, ?, ?, ?, ?, ?, ?)"


class DatabaseDecisions(Decisions):
    """Rows of an SQLite file, which is made where there is none.

    Raises:
        DataError: the file is damaged.
    """

    def __init__(self, path: Path) -> None:
        self._path, self._lock = path, threading.Lock()
        with self._readable():
            self._database = open_shared(path)
            closed_with(self, self._database)
            self._database.execute("pragma secure_delete = on")
            self._database.execute(_TABLE)

    def every(self) -> list[Decision]:
        with self._readable():
            return [_decision(row) for row in self._database.execute(_EVERY)]

    def add(self, decision: Decision, seen: int) -> Decision:
        with self._readable(), self._transaction():
            require_seen(map(_decision, self._database.execute(_OF_ROW, [decision.row_id])), seen)
            cursor = self._database.execute(_ADD, astuple(decision)[1:])
        return replace(decision, number=cursor.lastrowid or 0)

    def remove(self, rows: Iterable[str]) -> int:
        with self._readable():
            with self._transaction():
                gone = sum(self._database.execute("delete from decisions where row_id = ?", [row]).rowcount for row in rows)
            self._database.execute("pragma wal_checkpoint(truncate)")
        return gone

    def close(self) -> None:
        self._database.close()

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        """Nobody else writes between what the block reads and what it writes."""
        self._database.execute("begin immediate")
        try:
            yield
        except BaseException:
            self._database.execute("rollback")
            raise
        self._database.execute("commit")

    @contextmanager
    def _readable(self) -> Iterator[None]:
        with self._lock:
            try:
                yield
            except sqlite3.DatabaseError as error:
                raise DataError(f"the decisions of people cannot be read: {error}", str(self._path), "restore the file") from error


def _decision(row: tuple[Any, ...]) -> Decision:
    return Decision(**dict(zip((field.name for field in fields(Decision)), row, strict=True)))
