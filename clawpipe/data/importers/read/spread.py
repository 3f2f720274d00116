"""Records that are spread over the lines of a file: what stands before the first gap, and the session that the file names.

A line in the middle that cannot be read may have held a call or its result. What follows it is not joined to what stands before it:
a model would learn to answer without having asked.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import PurePath

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.data.importers.names import session_of_message
from clawpipe.data.importers.sources.lines import Line

AFTER_A_GAP = "after a line of its transcript that cannot be read"
_OF_A_FOLDER = ("api_conversation_history", "events")  # Cline, Roo and OpenHands write them into a folder for each task

Spread = Sequence[tuple[JsonObject, Line]]


def split_at_gap(records: Spread) -> tuple[Spread, Spread]:
    """Split the records of a file before the first one that follows lines which are neither blank nor among the records."""
    before = None
    for place, (_, line) in enumerate(records):
        if _is_gap(before, line):
            return records[:place], records[place:]
        before = line
    return records, ()


def by_session(records: Spread, is_said: Callable[[JsonObject], bool] | None) -> list[tuple[str | None, Spread]]:
    """Split the records of a file by the session that each message names; all of them are one part if some name none.

    Args:
        is_said: tells messages from headers, which are of the first session; None if a file is one session.
    """
    names = [session_of_message(record) if is_said and is_said(record) else None for record, _ in records]
    unnamed = [record for (record, _), name in zip(records, names, strict=True) if name is None]
    if is_said is None or any(map(is_said, unnamed)):
        return [(None, records)]
    first = next((name for name in names if name), None)
    parts: dict[str | None, list[tuple[JsonObject, Line]]] = {}
    for one, name in zip(records, names, strict=True):
        parts.setdefault(name or first, []).append(one)
    return list(parts.items())


def _is_gap(before: Line | None, line: Line) -> bool:
    """Whether more than line ends stand between two lines; `before` is None at the beginning of the file."""
    missing = line.number - (before.number if before else 0) - 1
    size = line.offset - (before.end if before else 0)
    return missing > 0 and size > missing * _line_end(before or line)


def _line_end(line: Line) -> int:
    """Return the length of the end of a line; 0 for rows of a table and elements of an array, which have none."""
    return max(line.end - line.offset - len(line.data), 0)


def repeated_names(files: Iterable[str]) -> frozenset[str]:
    """Return the names, without suffixes, that several files have."""
    return frozenset(name for name, count in Counter(map(_name_of, files)).items() if count > 1)


def session_of(file: str, repeated: Collection[str] = ()) -> str:
    """Return the session that a file names: by its name without suffixes, and by its folder where that name is not its own.

    Args:
        repeated: names that several files have.
    """
    name, folder = _name_of(file), PurePath(file).parent.name
    if not folder or (name not in _OF_A_FOLDER and name not in repeated):
        return name
    return folder if name in _OF_A_FOLDER else f"{folder}/{name}"


def _name_of(file: str) -> str:
    return PurePath(file).name.partition(".")[0]
