"""Split files with JSON over many lines: one array of objects, as `json.dump` writes a list, or indented objects.

Each element of the array, and each indented object, counts as a line.
"""

from __future__ import annotations

import re
from itertools import pairwise
from typing import IO, NamedTuple

MAX_ARRAY = 256 << 20  # bytes; the whole array is kept in memory
_HEAD = 1 << 16
_ARRAY = re.compile(rb"\s*\[\s*(?=\{)")
_INDENTED = re.compile(rb'\s*(?=\{[ \t\r]*\n\s*")')  # a line with an opening brace only, then a key
_ROW = re.compile(rb'\n\{[ \t]*"')  # a line with an opening brace and a key
_TO_BRACKET = re.compile(rb'(?:[^"\[\]{}]++|"(?:[^"\\]++|\\.)*+")*+([\[\]{}])', re.DOTALL)

Span = tuple[int, int]


class Elements(NamedTuple):
    """The bytes of a file, the span of each element, and the error that ended reading, if any."""

    data: bytes
    spans: list[Span]
    broken: Exception | None = None


def read_array(stream: IO[bytes], unreadable: tuple[type[Exception], ...]) -> Elements | None:
    """Return the elements of a file; None if it holds anything else, or is too large.

    A packed file that ends early yields its whole elements. Any other incomplete file may still be growing, and yields None.

    Args:
        stream: the unpacked file.
        unreadable: exceptions that mean an early end.
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
    """Whether a file begins like one that `read_array` reads."""
    return _may_begin(stream.read(_HEAD))


def _may_begin(data: bytes) -> bool:
    return bool(_ARRAY.match(data) or _INDENTED.match(data))


def _read(stream: IO[bytes], size: int, unreadable: tuple[type[Exception], ...]) -> tuple[bytes, Exception | None]:
    """Read up to `size` bytes, and return the error if the file ends early."""
    parts, left = list[bytes](), size
    try:
        while left and (part := stream.read1(min(left, _HEAD))):  # pyright: ignore[reportAttributeAccessIssue]
            parts.append(part)
            left -= len(part)
    except unreadable as error:
        return b"".join(parts), error
    return b"".join(parts), None


def spans_of(data: bytes, *, whole: bool = True) -> list[Span] | None:
    """Return begin and end of each element; None if the data are neither an array that begins with an object nor indented objects.

    Only strings and brackets are parsed. An indented object in which a row begins was broken off, and lines follow it. If the data
    are not `whole`, the rest after the last whole element does not count.
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
    """Return the spans of brackets at the depth `outside`, up to where the outer brackets close."""
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
