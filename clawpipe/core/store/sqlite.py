"""SQLite files: opened for many writers, checked before a library opens them."""

from __future__ import annotations

import sqlite3
import time
import weakref
from contextlib import closing
from pathlib import Path

_PATIENCE_SECONDS = 60.0


def open_shared(path: Path) -> sqlite3.Connection:
    """Open a database that threads and processes write at once; make the file, with a write-ahead log, where there is none.

    Raises:
        sqlite3.DatabaseError: the file is damaged, or others hold it for a minute.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    database = sqlite3.connect(path, timeout=_PATIENCE_SECONDS, check_same_thread=False)
    end = time.monotonic() + _PATIENCE_SECONDS
    while not _has_log(database, last_try=time.monotonic() > end):
        time.sleep(0.01)
    return database


def closed_with(owner: object, database: sqlite3.Connection) -> None:
    """Close a database when the object that holds it is collected: Python from 3.13 on warns of one that nobody has closed."""
    weakref.finalize(owner, database.close).atexit = False


def _has_log(database: sqlite3.Connection, last_try: bool) -> bool:
    """SQLite does not wait for its timeout where two make a file at once: one of them is told at once that it is locked."""
    try:
        database.execute("pragma journal_mode = wal")
    except sqlite3.OperationalError as error:
        if last_try or error.sqlite_errorcode != sqlite3.SQLITE_BUSY:
            database.close()
            raise
        return False
    return True


def damage(database: Path) -> str | None:
    """Return SQLite's message about a damaged file; None if it is intact, or being written."""
    try:
        with closing(sqlite3.connect(f"{database.absolute().as_uri()}?mode=ro", uri=True)) as connection:
            [found] = connection.execute("PRAGMA quick_check(1)").fetchone()
    except sqlite3.OperationalError:
        return None
    except sqlite3.DatabaseError as error:
        return str(error)
    return None if found == "ok" else str(found)
