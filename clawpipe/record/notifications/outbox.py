"""The outbox: events in a database of the home, each kept until every receiver has it or it is old."""

from __future__ import annotations

import datetime
import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass

from clawpipe.core.store.home import Home
from clawpipe.record.notifications.events import Event, Kind, event

FIRST_DELAY, LAST_DELAY = 10.0, 3600.0  # seconds before a delivery is tried again; twice as long each time
_LEASE_SECONDS = 60.0  # a delivery that is under way is not tried by another process for so long
_KEPT_SECONDS = 30 * 86400.0
_WAIT_SECONDS = 5.0  # for another process that writes
_TABLES = """
CREATE TABLE IF NOT EXISTS events (id TEXT PRIMARY KEY, time REAL NOT NULL, body TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS deliveries (
    event TEXT NOT NULL, receiver TEXT NOT NULL, tries INTEGER NOT NULL DEFAULT 0, due REAL NOT NULL, done REAL, error TEXT,
    PRIMARY KEY (event, receiver)
);
"""


@dataclass(frozen=True)
class Delivery:
    """An event on its way to a receiver."""

    event: Event
    receiver: str
    tries: int


class Outbox:
    """The events of a home. Several processes may use it at once."""

    def __init__(self, home: Home) -> None:
        self._path = home.root / "notifications.sqlite"

    def put(self, event: Event, receivers: Sequence[str] = (), now: float | None = None) -> bool:
        """Keep an event for its receivers; without any, for those of the next `address`.

        Returns:
            whether it is new.
        """
        now = time.time() if now is None else now
        with self._open() as database:
            new = database.execute(
                "INSERT OR IGNORE INTO events VALUES (?, ?, ?)", (event.id, now, event.model_dump_json())
            ).rowcount
            if new:
                _deliver_to(database, event.id, receivers, now)
        return bool(new)

    def address(self, receivers: Sequence[str], now: float | None = None) -> None:
        """Give the receivers to events that have none yet, which processes without settings have put."""
        now = time.time() if now is None else now
        with self._open() as database:
            for (event,) in database.execute("SELECT id FROM events WHERE id NOT IN (SELECT event FROM deliveries)").fetchall():
                _deliver_to(database, event, receivers, now)

    def claim(self, receiver: str, now: float | None = None) -> Delivery | None:
        """Take the oldest delivery that is due for a receiver, so that no other process takes it meanwhile; None: there is none."""
        now = time.time() if now is None else now
        with self._open() as database:
            found = database.execute(
                "SELECT id, body, tries FROM deliveries JOIN events ON id = event"
                " WHERE receiver = ? AND done IS NULL AND due <= ? ORDER BY time, events.rowid LIMIT 1",
                (receiver, now),
            ).fetchone()
            if found is None:
                return None
            database.execute(
                "UPDATE deliveries SET due = ? WHERE event = ? AND receiver = ?", (now + _LEASE_SECONDS, found[0], receiver)
            )
            return Delivery(Event.model_validate_json(found[1]), receiver, found[2])

    def delivered(self, delivery: Delivery, now: float | None = None) -> None:
        with self._open() as database:
            database.execute(
                "UPDATE deliveries SET done = ?, error = NULL, tries = tries + 1 WHERE event = ? AND receiver = ?",
                (time.time() if now is None else now, delivery.event.id, delivery.receiver),
            )

    def failed(self, delivery: Delivery, error: str, now: float | None = None) -> None:
        """Put a delivery off, and with it all others for the same receiver: one try tells whether it is back."""
        now = time.time() if now is None else now
        due = now + min(FIRST_DELAY * 2**delivery.tries, LAST_DELAY)
        with self._open() as database:
            database.execute(
                "UPDATE deliveries SET due = ?, error = ?, tries = tries + 1 WHERE event = ? AND receiver = ?",
                (due, error, delivery.event.id, delivery.receiver),
            )
            database.execute(
                "UPDATE deliveries SET due = max(due, ?) WHERE receiver = ? AND done IS NULL", (due, delivery.receiver)
            )

    def waiting(self) -> list[tuple[Event, str, str]]:
        """Return what has not been delivered, the oldest first: event, receiver, and the error of the last try or ""."""
        with self._open() as database:
            found = database.execute(
                "SELECT body, receiver, coalesce(error, '') FROM deliveries JOIN events ON id = event"
                " WHERE done IS NULL ORDER BY time, events.rowid"
            ).fetchall()
        return [(Event.model_validate_json(body), receiver, error) for body, receiver, error in found]

    def receivers(self) -> list[str]:
        """Return the receivers that something waits for."""
        return list(dict.fromkeys(receiver for _, receiver, _ in self.waiting()))

    def prune(self, now: float | None = None) -> None:
        """Forget events that are older than 30 days, delivered or not."""
        old = (time.time() if now is None else now) - _KEPT_SECONDS
        with self._open() as database:
            database.execute("DELETE FROM deliveries WHERE event IN (SELECT id FROM events WHERE time < ?)", (old,))
            database.execute("DELETE FROM events WHERE time < ?", (old,))

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        """Open the database for one transaction."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with closing(sqlite3.connect(self._path, timeout=_WAIT_SECONDS, isolation_level=None)) as database:
            database.executescript(_TABLES)
            database.execute("BEGIN IMMEDIATE")
            yield database
            database.execute("COMMIT")


def leave(home: Home, kind: Kind, text: str) -> None:
    """Leave an event for whoever delivers next: for processes that know no settings.

    The same text is told once a day. An outbox that cannot be written stops nobody.
    """
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    with suppress(OSError, sqlite3.Error):
        Outbox(home).put(event(home, kind, text, about=f"{today} {text}"))


def _deliver_to(database: sqlite3.Connection, event: str, receivers: Sequence[str], now: float) -> None:
    rows = [(event, receiver, now) for receiver in receivers]
    database.executemany("INSERT OR IGNORE INTO deliveries (event, receiver, due) VALUES (?, ?, ?)", rows)
