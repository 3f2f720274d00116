"""Recognise files that hold no lines of JSON by their first bytes, to call them by their names."""

from __future__ import annotations

import re

_TAR, _AT = b"ustar", 257
_MAGIC = {
    b"PK\x03\x04": "a zip archive: unpack it, and name what was in it",
    b"PK\x05\x06": "an empty zip archive",
    b"7z\xbc\xaf\x27\x1c": "a 7z archive: unpack it, and name what was in it",
    b"Rar!\x1a\x07": "a rar archive: unpack it, and name what was in it",
    b"SQLite format 3\x00": "an SQLite database: export its rows as JSON Lines",
    b"%PDF-": "a PDF document",
    b"\x89PNG": "a picture",
    b"\xff\xd8\xff": "a picture",
    b"\x80\x04\x95": "a Python pickle, which is never opened",
    b"\x80\x05\x95": "a Python pickle, which is never opened",
    b"ORC\n": "an ORC table: convert it to Parquet",
    b"Obj\x01": "an Avro file: convert it to Parquet or JSON Lines",
}
_JSON = re.compile(rb"^\s*[\[{]", re.MULTILINE)  # a line that may hold a record
_HEADING = re.compile(rb"^#{1,6} \S", re.MULTILINE)
_HTML = re.compile(rb"\s*<(?:!doctype html|html|\?xml)", re.IGNORECASE)


class ForeignFileError(OSError):
    """A file that holds something else than records. The message says what, and what to do."""


def refuse_foreign(head: bytes) -> None:
    """Raise ForeignFileError if the first bytes of a file are those of another kind of file."""
    found = next((name for magic, name in _MAGIC.items() if head.startswith(magic)), None)
    if head[_AT : _AT + len(_TAR)] == _TAR:
        found = "a tar archive: unpack it, and name what was in it"
    if found is None and not _JSON.search(head):
        found = "a web page" if _HTML.match(head) else "Markdown, not JSON Lines" if _HEADING.search(head) else None
    if found:
        raise ForeignFileError(found)
