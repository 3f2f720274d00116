"""A home that was moved, or restored from a copy: MLflow's database keeps absolute paths, which would lead to the home it was.

Paths of the home's own artefacts are rewritten to where the home is now, before anything is read or written by them.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

_BELOW = "/mlflow/artifacts"  # of a home; see clawpipe.registry.tracking
_COLUMNS = (
    ("experiments", "artifact_location"),
    ("runs", "artifact_uri"),
    ("logged_models", "artifact_location"),
    ("model_versions", "source"),
    ("model_versions", "storage_location"),
)


def settle(database: Path, home: Path) -> None:
    """Make the paths in a home's own database those of `home`. One transaction; nothing is written where they are already.

    A database that cannot be written, or that somebody holds for long, is left as it is: reading needs no more.
    """
    try:
        with closing(sqlite3.connect(database, timeout=10.0)) as connection, connection:
            for old in _other_homes(connection, home):
                _move(connection, old, str(home))
    except sqlite3.OperationalError:
        return


def _other_homes(connection: sqlite3.Connection, home: Path) -> list[str]:
    """Homes that experiments have their artefacts in, other than this one."""
    locations = connection.execute("select distinct artifact_location from experiments").fetchall()
    roots = {location.removeprefix("file://").partition(_BELOW)[0] for (location,) in locations if location and _BELOW in location}
    return sorted(root for root in roots if root != str(home))


def _move(connection: sqlite3.Connection, old: str, new: str) -> None:
    for table, column in _COLUMNS:
        for scheme in ("", "file://"):
            before, after = f"{scheme}{old}{_BELOW}", f"{scheme}{new}{_BELOW}"
            connection.execute(
                f"update {table} set {column} = ? || substr({column}, ?) where substr({column}, 1, ?) = ?",
                [after, len(before) + 1, len(before), before],
            )
