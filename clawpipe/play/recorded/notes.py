"""The note in a row that was shortened: what was cut of it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator

from clawpipe.core.basics.json_types import JsonObject, Row

NOTE = "compressed_by_clawpipe"  # its name in the column `extra`; the macros of curation name it, too


def notes_of(rows: Iterable[Row]) -> Iterator[tuple[str, JsonObject]]:
    """Yield the id and the note of each row that was shortened."""
    for row in rows:
        note = json.loads(row.get("extra") or "{}").get(NOTE)
        if isinstance(note, dict):
            yield row["trajectory_id"], note
