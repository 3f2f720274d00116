"""Recognise files that hold no lines of JSON by their first bytes, to call them by their names."""

from __future__ import annotations

import re

_TAR, _AT = b"ustar", 257
_MAGIC = {
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
    b"-----BEGIN PGP": "an encrypted or signed message of PGP: decrypt it first",
    b"age-encryption.org/": "a file that is encrypted with age: decrypt it first",
    b"-----BEGIN AGE": "a file that is encrypted with age: decrypt it first",
    b"Salted__": "a file that is encrypted with OpenSSL: decrypt it first",
    b"gAAAAA": "a file that is encrypted with Fernet: decrypt it first",
    b"\x7fELF": "a program",
    b"MZ\x90": "a program",
    b"GGUF": "the weights of a model",
    b"\x93NUMPY": "an array of NumPy",
    b"\x89HDF\r\n": "an HDF5 file: convert it to Parquet or JSON Lines",
    b"\xff\xfe": "UTF-16 text: convert it to UTF-8",
    b"\xfe\xff": "UTF-16 text: convert it to UTF-8",
    b"{\\rtf": "a document of a word processor",
    b"\xd0\xcf\x11\xe0": "a document of an office program",
}
_JSON = re.compile(rb"^\s*[\[{]", re.MULTILINE)  # a line that may hold a record
_HEADING = re.compile(rb"^#{1,6} \S", re.MULTILINE)
_CSV = re.compile(rb"[\w\"'.-]+(?:,[\w\"'.-]+)+\r?\n")  # a line with the names of columns
_HTML = re.compile(rb"\s*<(?:!doctype html|html|\?xml)", re.IGNORECASE)
_ZIP, _ENCRYPTED, _FLAGS = b"PK\x03\x04", 1, 6
_OFFICE = (b"word/", b"xl/", b"[Content_Types].xml")
_CONTROLS = bytes({*range(32)} - {*b"\t\n\v\f\r\x1b"})  # that texts of any encoding hardly have
_FEW = 0.05  # of the bytes
_UNPACK = ": unpack it, and name what was in it"


class ForeignFileError(OSError):
    """A file that holds something else than records. The message says what, and what to do."""


def refuse_foreign(head: bytes) -> None:
    """Raise ForeignFileError if the first bytes of a file are those of another kind of file."""
    found = next((name for magic, name in _MAGIC.items() if head.startswith(magic)), None)
    if head[_AT : _AT + len(_TAR)] == _TAR:
        found = "a tar archive: unpack it, and name what was in it"
    if head.startswith(_ZIP):
        found = _zip(head)
    if found is None and not _JSON.search(head):
        found = _text(head)
    if found:
        raise ForeignFileError(found)


def _zip(head: bytes) -> str:
    if int.from_bytes(head[_FLAGS : _FLAGS + 2], "little") & _ENCRYPTED:
        return "a zip archive with a password: unpack it, and name what was in it"
    return "a document of an office program" if any(name in head for name in _OFFICE) else f"a zip archive{_UNPACK}"


def _text(head: bytes) -> str | None:
    """Return what a file is in which no line may hold a record; None for text of no known kind, whose lines are refused."""
    if _HTML.match(head):
        return "a web page"
    if b"\0" in head or len(head) - len(head.translate(None, _CONTROLS)) > _FEW * len(head):
        return "a binary file of an unknown kind"
    if _CSV.match(head):
        return "a table of values between commas: convert it to Parquet or JSON Lines"
    return "Markdown, not JSON Lines" if _HEADING.search(head) else None
