"""Files that hold JSON over many lines: one array of objects, as `json.dump` writes a list, or objects that are indented.

Each element of the array, each of the objects, counts as a line.
"""

from __future__ import annotations

import re
from itertools import pairwise
from typing import IO

MAX_ARRAY = 256 << 20  # bytes; it is held in memory as a whole
_HEAD = 1 << 16
_ARRAY = re.compile(rb"\s*\[\s*(?=\{)")
_INDENTED = re.compile(rb'\s*(?=\{[ \t\r]*\n\s*")')  # a line that opens an object alone, and a key
_ROW = re.compile(rb'\n\{[ \t]*"')  # a line that opens an object and says something of it
_TO_BRACKET = re.compile(rb'(?:[^"\[\]{}]++|"(?:[^"\\]++|\\.)*+")*+([\[\]{}])', re.DOTALL)

Span = tuple[int, int]


def read_array(stream: IO[bytes]) -> tuple[bytes, list[Span]] | None:
    """The bytes of a file, and where each element lies in them; None where it holds anything else, or too much."""
    head = stream.read(_HEAD)
    if not _ARRAY.match(head) and not _INDENTED.match(head):
        return None
    data = head + stream.read(MAX_ARRAY + 1 - len(head))
    spans = spans_of(data) if len(data) <= MAX_ARRAY else None
    return None if spans is None else (data, spans)


def spans_of(data: bytes) -> list[Span] | None:
    """Begin and end of each element; None where the data are not one whole array of objects and lists, an object first, nor such
    objects and lists one after the other, indented.

    What an element says is not looked at: only strings and brackets are. An indented object in which a row begins is none: it was
    broken off, and what follows are lines.
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
    return spans if between and data[spans[-1][1] :].strip() == end else None


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
