"""Whether an SQLite file is whole, asked before a library opens it and fails somewhere inside."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path


def damage(database: Path) -> str | None:
    """What is wrong with the file, in SQLite's words; None: it is whole, or somebody writes to it just now."""
    try:
        with closing(sqlite3.connect(f"{database.absolute().as_uri()}?mode=ro", uri=True)) as connection:
            [found] = connection.execute("PRAGMA quick_check(1)").fetchone()
    except sqlite3.OperationalError:
        return None
    except sqlite3.DatabaseError as error:
        return str(error)
    return None if found == "ok" else str(found)
