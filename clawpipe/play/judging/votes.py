"""Store judges' votes in the home, so that a repeated night does not ask again, and `clawpipe judge report` can read them."""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from clawpipe.core.store.home import Home
from clawpipe.core.store.sqlite import closed_with, open_shared
from clawpipe.errors import DataError

_TABLE = """create table if not exists votes (
    key text primary key, model text not null, prompt_version text not null, number integer not null, subject text not null,
    trajectory text not null, raw text not null, value integer, hints text not null, prompt_tokens integer not null,
    reply_tokens integer not null, seconds real not null, passing integer not null default 0
)"""
_COLUMNS = (
    "key, model, prompt_version, number, subject, trajectory, raw, value, hints, prompt_tokens, reply_tokens, seconds, passing"
)
_ADDED = {"trajectory": "text not null default ''", "passing": "integer not null default 0"}  # columns that older homes lack
_AT_ONCE = 500  # keys of one query


@dataclass(frozen=True)
class Vote:
    """One answer of a judge about one turn.

    Attributes:
        key: digest of what was asked: model, layout of the prompt, sampling, content, and `number`.
        number: of the vote among those on the same turn by the same model.
        subject: digest of the turn, the same for all votes on it.
        trajectory: id of the first one in which the turn was judged, of a group all ids, a line each; "": unknown, of a vote from
            before that was kept.
        raw: the answer as it came.
        value: 1, 0 or -1; None: it is no verdict.
        seconds: that the answer took.
        passing: whether it is asked for again the next time, since nothing was said.
    """

    key: str
    model: str
    prompt_version: str
    number: int
    subject: str
    trajectory: str
    raw: str
    value: int | None
    hints: tuple[str, ...]
    prompt_tokens: int
    reply_tokens: int
    seconds: float
    passing: bool = False

    @property
    def trajectories(self) -> list[str]:
        return self.trajectory.split("\n")


class VoteStore:
    """The votes that were ever cast in a home; threads and processes may share it.

    Raises:
        DataError: the file is damaged.
    """

    def __init__(self, path: Path) -> None:
        self.path, self._lock = path, threading.Lock()
        with self._readable():
            self._database = open_shared(path)
            closed_with(self, self._database)
            self._database.execute(_TABLE)
            self._add_columns()
            self._database.commit()

    @classmethod
    def of(cls, home: Home) -> VoteStore:
        return cls(votes_file(home))

    def known(self, keys: Iterable[str]) -> dict[str, Vote]:
        """Return those of the votes that were cast before, and are not asked for again."""
        wanted, found = list(dict.fromkeys(keys)), list[Vote]()
        with self._readable():
            for start in range(0, len(wanted), _AT_ONCE):
                some = wanted[start : start + _AT_ONCE]
                marks = ", ".join("?" * len(some))
                found += map(
                    _vote, self._database.execute(f"select {_COLUMNS} from votes where key in ({marks}) and not passing", some)
                )
        return {vote.key: vote for vote in found}

    def every(self) -> list[Vote]:
        """Return all votes, those on one turn together."""
        with self._readable():
            return list(map(_vote, self._database.execute(f"select {_COLUMNS} from votes order by subject, model, number, key")))

    def add(self, vote: Vote) -> None:
        """Keep a vote; it is on disk when this returns."""
        values = asdict(vote) | {"hints": json.dumps(vote.hints, ensure_ascii=False)}
        names = ", ".join(f":{name.strip()}" for name in _COLUMNS.split(","))
        with self._readable():
            self._database.execute("delete from votes where key = ? and passing", [vote.key])
            self._database.execute(f"insert or ignore into votes ({_COLUMNS}) values ({names})", values)
            self._database.commit()

    def remove(self, keys: Iterable[str]) -> None:
        """Remove votes; no byte of them is left in the file."""
        with self._readable():
            self._database.execute("pragma secure_delete = on")
            self._database.executemany("delete from votes where key = ?", [(key,) for key in keys])
            self._database.commit()
            self._database.execute("pragma wal_checkpoint(truncate)")

    def close(self) -> None:
        self._database.close()

    def _add_columns(self) -> None:
        """Give votes that were cast before a column was there its default: they are not asked for again."""
        known = {column[1] for column in self._database.execute("pragma table_info(votes)")}
        for name, kind in _ADDED.items():
            if name not in known:
                self._database.execute(f"alter table votes add column {name} {kind}")

    @contextmanager
    def _readable(self) -> Iterator[None]:
        with self._lock:
            try:
                yield
            except sqlite3.DatabaseError as error:
                raise DataError(
                    f"the judges' votes cannot be read: {error}", str(self.path), "remove it: judges are asked anew"
                ) from error


def votes_file(home: Home) -> Path:
    return home.root / "judging" / "votes.sqlite"


def _vote(row: tuple[Any, ...]) -> Vote:
    key, model, version, number, subject, about, raw, value, hints, asked, replied, seconds, passing = row
    read = tuple(json.loads(hints))
    return Vote(key, model, version, number, subject, about, raw, value, read, asked, replied, seconds, bool(passing))
