"""Files that hold one JSON array of objects, as `json.dump` writes a list: each element counts as a line."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import IO

MAX_ARRAY = 256 << 20  # bytes; it is held in memory as a whole
_HEAD = 1 << 16
_OPENING = re.compile(rb"\s*\[\s*(?=\{)")
_TO_BRACKET = re.compile(rb'(?:[^"\[\]{}]++|"(?:[^"\\]++|\\.)*+")*+([\[\]{}])', re.DOTALL)

Span = tuple[int, int]


def read_array(stream: IO[bytes]) -> tuple[bytes, list[Span]] | None:
    """The bytes of a file, and where each element of its array lies in them; None where it holds anything else, or too much."""
    head = stream.read(_HEAD)
    if not _OPENING.match(head):
        return None
    data = head + stream.read(MAX_ARRAY + 1 - len(head))
    spans = spans_of(data) if len(data) <= MAX_ARRAY else None
    return None if spans is None else (data, spans)


def spans_of(data: bytes) -> list[Span] | None:
    """Begin and end of each element; None where the data are not one whole array of objects and lists, an object first.

    What an element says is not looked at: only strings and brackets are.
    """
    opening = _OPENING.match(data)
    spans: list[Span] = []
    begin, depth = 0, 1
    for found in iter(_TO_BRACKET.scanner(data, opening.end()).match, None) if opening else ():  # pyright: ignore[reportAttributeAccessIssue]
        if found[1] in (b"[", b"{"):
            begin = found.end() - 1 if depth == 1 else begin
            depth += 1
            continue
        depth -= 1
        if depth == 1:
            spans.append((begin, found.end()))
        elif not depth:
            return spans if _is_whole(data, spans, found.end()) else None
    return None


def _is_whole(data: bytes, spans: list[Span], end: int) -> bool:
    """Nothing stands between elements but a comma, and nothing behind the array."""
    between = all(data[left[1] : right[0]].strip() == b"," for left, right in pairwise(spans))
    return between and not data[spans[-1][1] : end - 1].strip() and not data[end:].strip()
