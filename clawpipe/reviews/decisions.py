"""Decisions of people about rows: a log in the home, of which the last decision on a row counts."""

from __future__ import annotations

import datetime
import sqlite3
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Literal

from clawpipe.errors import ConfigError, DataError
from clawpipe.reporting.wording import moment
from clawpipe.store.home import Home
from clawpipe.store.sqlite import closed_with, open_shared

Verdict = Literal["approved", "rejected", "edited", "open"]  # open: an earlier decision was taken back
_COLUMNS = "number, row_id, verdict, by, at, reason, turn, text"
_TABLE = """create table if not exists decisions (
    number integer primary key autoincrement, row_id text not null, verdict text not null, by text not null, at text not null,
    reason text not null, turn integer, text text
)"""
_LAST = f"select {_COLUMNS} from decisions where number in (select max(number) from decisions group by row_id) order by row_id"
_OF_ROW = f"select {_COLUMNS} from decisions where row_id = ? order by number"


class DecidedError(ConfigError):
    """Somebody has decided about the row since its reader saw it."""


@dataclass(frozen=True)
class Decision:
    """What a person decided about a row.

    Attributes:
        number: of the decision, counted in the home from 1.
        row_id: of a trajectory or a preference pair.
        by: who decided.
        at: when, in UTC.
        reason: why, in the person's words; "" for none.
        turn: of an edit, the turn that is replaced, numbered as scores number turns.
        text: of an edit, the answer in place of that turn's.
    """

    number: int
    row_id: str
    verdict: Verdict
    by: str
    at: str
    reason: str = ""
    turn: int | None = None
    text: str | None = None


class Decisions:
    """All decisions that were made in a home; threads and processes may share them.

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

    @classmethod
    def of(cls, home: Home) -> Decisions:
        return cls(decisions_file(home))

    def last(self) -> dict[str, Decision]:
        """Return the last decision on each row, also one that takes another back."""
        with self._readable():
            return {found.row_id: found for found in map(_decision, self._database.execute(_LAST))}

    def every(self) -> list[Decision]:
        """Return all decisions, oldest first."""
        with self._readable():
            return [_decision(row) for row in self._database.execute(f"select {_COLUMNS} from decisions order by number")]

    def history(self, row_id: str) -> list[Decision]:
        """Return all decisions on a row, oldest first."""
        with self._readable():
            return [_decision(row) for row in self._database.execute(_OF_ROW, [row_id])]

    def decide(
        self,
        row_id: str,
        verdict: Verdict,
        by: str,
        *,
        seen: int,
        reason: str = "",
        turn: int | None = None,
        text: str | None = None,
    ) -> Decision:
        """Record a decision; it is on disk when this returns.

        Args:
            seen: the number of the last decision on the row that the person knew; 0 for none.

        Raises:
            DecidedError: there is a later one.
            ConfigError: nobody is named.
        """
        if not by.strip():
            raise ConfigError("a decision needs the name of who decides", "by", "give one with --by")
        at = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        values = (row_id, verdict, by.strip(), at, reason.strip(), turn, text)
        with self._readable(), self._transaction():
            known = [_decision(row) for row in self._database.execute(_OF_ROW, [row_id])]
            if known and known[-1].number != seen:
                raise DecidedError(told(known[-1]), row_id, "nothing was recorded: look at it again")
            cursor = self._database.execute(
                "insert into decisions (row_id, verdict, by, at, reason, turn, text) values (?, ?, ?, ?, ?, ?, ?)", values
            )
        return Decision(cursor.lastrowid or 0, *values)

    def remove(self, rows: Iterable[str]) -> int:
        """Remove all decisions on rows, and return how many; no byte of them is left in the file."""
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


def decisions_file(home: Home) -> Path:
    return home.root / "reviews" / "decisions.sqlite"


def last_decisions(home: Home) -> dict[str, Decision]:
    """Return the decisions that count, by row; a home in which nobody has decided anything gets no file."""
    if not decisions_file(home).exists():
        return {}
    decisions = Decisions.of(home)
    try:
        return {row: one for row, one in decisions.last().items() if one.verdict != "open"}
    finally:
        decisions.close()


def told(decision: Decision) -> str:
    """Return a decision in words."""
    verb = {"open": "taken back"}.get(decision.verdict, decision.verdict)
    return f"{verb} by {decision.by} at {moment(decision.at)}" + (f": {decision.reason}" if decision.reason else "")


def _decision(row: tuple) -> Decision:
    return Decision(**dict(zip((field.name for field in fields(Decision)), row, strict=True)))
