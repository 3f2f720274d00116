"""Records that are spread over the lines of a file: what stands before the first gap, and the session that the file names.

A line in the middle that cannot be read may have held a call or its result. What follows it is not joined to what stands before it:
a model would learn to answer without having asked.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import PurePath

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.data.importers.sources.lines import STDIN, Line
from clawpipe.data.importers.sources.tables import HUB
from clawpipe.data.importers.sources.urls import is_url

AFTER_A_GAP = "after a line of its transcript that cannot be read"
_ID = re.compile(  # a UUID; a time to the minute; eight hexadecimal digits; or sixteen letters and digits
    r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-|(?:\D*\d){12}|(?=\d*[a-f])(?=[a-f]*\d)[0-9a-f]{8}|(?=(?:\d*[a-z]+\d){3})[0-9a-z]{16}",
    re.IGNORECASE,
)
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


def _is_gap(before: Line | None, line: Line) -> bool:
    """Whether more than line ends stand between two lines; `before` is None at the beginning of the file."""
    missing = line.number - (before.number if before else 0) - 1
    size = line.offset - (before.end if before else 0)
    return missing > 0 and size > missing * _line_end(before or line)


def _line_end(line: Line) -> int:
    """Return the length of the end of a line; 0 for rows of a table and elements of an array, which have none."""
    return max(line.end - line.offset - len(line.data), 0)


def session_of(file: str) -> str:
    """Return the session that a file names. It depends on the file alone, so that it stays when other files appear.

    A name that holds an id, without suffixes, names the session wherever the file lies; any other one does so with its folder.
    """
    name, folder = _name_of(file), _folder_of(file)
    if not folder or _ID.search(name):
        return name
    return folder if name in _OF_A_FOLDER else f"{folder}/{name}"


def earlier_name(file: str, session: str | None) -> str | None:
    """Return the name that earlier releases gave the session of a file: without its folder; None if that is its name, or if the
    file does not name it."""
    if not session or "/" not in session:
        return None
    name = _name_of(file)
    return name if session == f"{_folder_of(file)}/{name}" == session_of(file) else None


def _name_of(file: str) -> str:
    return PurePath(file).name.partition(".")[0]


def _folder_of(file: str) -> str:
    """Return the name of the folder of a file, in the form that a session may have; "" for a stream or a data set of a hub."""
    if file == STDIN or file.startswith(HUB):
        return ""
    return PurePath(file if is_url(file) else os.path.abspath(file)).parent.name.lstrip("~\\")
