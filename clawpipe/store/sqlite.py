"""Check that an SQLite file is intact before a library opens it."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path


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
