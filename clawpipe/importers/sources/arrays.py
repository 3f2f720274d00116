"""Files that hold JSON over many lines: one array of objects, as `json.dump` writes a list, or objects that are indented.

Each element of the array, each of the objects, counts as a line.
"""

from __future__ import annotations

import re
from itertools import pairwise
from typing import IO, NamedTuple

MAX_ARRAY = 256 << 20  # bytes; it is held in memory as a whole
_HEAD = 1 << 16
_ARRAY = re.compile(rb"\s*\[\s*(?=\{)")
_INDENTED = re.compile(rb'\s*(?=\{[ \t\r]*\n\s*")')  # a line that opens an object alone, and a key
_ROW = re.compile(rb'\n\{[ \t]*"')  # a line that opens an object and says something of it
_TO_BRACKET = re.compile(rb'(?:[^"\[\]{}]++|"(?:[^"\\]++|\\.)*+")*+([\[\]{}])', re.DOTALL)

Span = tuple[int, int]


class Elements(NamedTuple):
    """The bytes of a file, where each element lies in them, and why they could not be read on, if so."""

    data: bytes
    spans: list[Span]
    broken: Exception | None = None


def read_array(stream: IO[bytes], unreadable: tuple[type[Exception], ...]) -> Elements | None:
    """The elements of a file; None where it holds anything else, or too much.

    Of a packed file that breaks off, those that are whole; any other one may still be written, and is not one until it is whole.

    Args:
        stream: of the unpacked file.
        unreadable: what tells that it breaks off.
    """
    data, broken = _read(stream, _HEAD, unreadable)
    if not _may_begin(data):
        return None
    if not broken:
        more, broken = _read(stream, MAX_ARRAY + 1 - len(data), unreadable)
        data += more
    spans = spans_of(data, whole=broken is None) if len(data) <= MAX_ARRAY else None
    return None if spans is None else Elements(data, spans, broken)


def begins_elements(stream: IO[bytes]) -> bool:
    """Whether a file begins as one that `read_array` reads."""
    return _may_begin(stream.read(_HEAD))


def _may_begin(data: bytes) -> bool:
    return bool(_ARRAY.match(data) or _INDENTED.match(data))


def _read(stream: IO[bytes], size: int, unreadable: tuple[type[Exception], ...]) -> tuple[bytes, Exception | None]:
    """So many bytes, or as many as there are, and why there are no more if the file breaks off."""
    parts, left = list[bytes](), size
    try:
        while left and (part := stream.read1(min(left, _HEAD))):  # pyright: ignore[reportAttributeAccessIssue]
            parts.append(part)
            left -= len(part)
    except unreadable as error:
        return b"".join(parts), error
    return b"".join(parts), None


def spans_of(data: bytes, *, whole: bool = True) -> list[Span] | None:
    """Begin and end of each element; None where the data are not one whole array of objects and lists, an object first, nor such
    objects and lists one after the other, indented.

    What an element says is not looked at: only strings and brackets are. An indented object in which a row begins is none: it was
    broken off, and what follows are lines. Where the data are not `whole`, what follows the last whole element does not count.
    """
    array = _ARRAY.match(data)
    opening = array or _INDENTED.match(data)
    if not opening or (not array and _ROW.search(data)):
        return None
    spans = _at_depth(data, opening.end(), 1 if array else 0)
    if not spans:
        return None
    comma, end = (b",", b"]") if array else (b"", b"")
    between = all(data[left[1] : right[0]].strip() == comma for left, right in pairwise(spans))
    return spans if between and (not whole or data[spans[-1][1] :].strip() == end) else None


def _at_depth(data: bytes, start: int, outside: int) -> list[Span]:
    """What is in brackets, of what `outside` brackets are around; up to where these close."""
    spans: list[Span] = []
    begin, depth = 0, outside
    for found in iter(_TO_BRACKET.scanner(data, start).match, None):  # pyright: ignore[reportAttributeAccessIssue]
        if found[1] in (b"[", b"{"):
            begin = found.end() - 1 if depth == outside else begin
            depth += 1
            continue
        depth -= 1
        if depth == outside:
            spans.append((begin, found.end()))
        elif depth < outside:
            break
    return spans
