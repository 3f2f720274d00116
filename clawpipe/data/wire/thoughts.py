"""Thoughts in the text of a turn: what a model tells itself, which no client shows and no tool may follow.

A thought stands between two markers, at the beginning of a turn or later. Its opening marker is missing where the prompt holds it,
its closing one where sampling was cut off. A call that a thought only considers is no call in any format.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

FIELDS = ("reasoning_content", "reasoning")  # of a message, which hold a thought beside its text
LOGGED = (*FIELDS, "thinking")  # the same in logs, also those of Ollama's own API
OPENING, CLOSING = "<think>", "</think>"  # the markers that are written
_MARKERS = {OPENING: CLOSING, "<thinking>": "</thinking>", "[THINK]": "[/THINK]"}
_OPENING = re.compile("|".join(map(re.escape, _MARKERS)))
_CLOSING = re.compile("|".join(map(re.escape, _MARKERS.values())))
_MARKER = re.compile(f"{_OPENING.pattern}|{_CLOSING.pattern}")
_CLOSED = re.compile("|".join(f"{re.escape(one)}.*?{re.escape(end)}" for one, end in _MARKERS.items()), re.DOTALL)


class Found(NamedTuple):
    """The span of one or more calls in a text, and their texts."""

    start: int
    end: int
    bodies: tuple[str, ...]


Find = Callable[[str, int], Found | None]  # the first calls in a text from a place on


def with_thoughts(text: str, thoughts: Sequence[str]) -> str:
    """Put reasoning from a separate field before the text, between markers, unless the text begins with a thought."""
    thought = "\n".join(thoughts)
    return text if not thought or _OPENING.match(text.lstrip()) else f"{OPENING}\n{thought}\n{CLOSING}\n{text}"


def with_opening(text: str, prompt: str) -> str:
    """Put the opening marker of a thought before a text whose prompt ends with it."""
    return f"{OPENING}\n{text}" if prompt.rstrip().endswith(OPENING) else text


def split_thought(text: str) -> tuple[str, str]:
    """Split a text behind the thoughts that it begins with, with their markers; the first part is empty if there is none."""
    end = _beginning(text)
    while (found := _thought(text, end)) and not text[end : found[0]].strip():
        end = found[1]
    return text[:end], text[end:]


def spoken(text: str) -> str:
    """Return what is left of a text without thoughts and surrounding space."""
    if "<" in text or "[" in text:
        text = _CLOSED.sub("", split_thought(text)[1])
    return text.strip()


def after_thoughts(text: str) -> str:
    """Return what stands behind the last thought that ended; "" where a thought that the text begins with never ended."""
    ends = [found.end() for found in _CLOSING.finditer(text)]
    if ends:
        return text[ends[-1] :]
    return "" if _OPENING.match(text.lstrip()) else text


def words_of(thought: str) -> str:
    """Return a thought without its markers and the space beside them."""
    return "".join(part.strip() for part in _MARKER.split(thought))


def split_calls(text: str, find: Find) -> tuple[str, list[str]]:
    """Return the text without its calls, and the text of each call. Calls in a thought stay text."""
    found = _outside_thoughts(text, find)
    ends = [0, *(one.end for one in found)]
    starts = [*(one.start for one in found), len(text)]
    return "".join(text[end:start] for end, start in zip(ends, starts, strict=True)), [body for one in found for body in one.bodies]


def content_end(text: str, begins: Callable[[str], int]) -> int:
    """Return where in the beginning of a turn's text a call starts, or may turn out to start; its length if none does.

    Args:
        begins: the same for a text without thoughts.
    """
    place = 0
    while thought := _thought(text, place):
        for end in (thought[0], len(text)):  # what may begin a call before the thought may turn out to be none with it
            found = place + begins(text[place:end])
            if found >= thought[0]:
                break
        else:
            return found
        place = thought[1]
    return place + begins(text[place:])


def open_thought(text: str, opened: str = "") -> str:
    """Return the opening marker of the thought in which a text ends; "" if it ends in none.

    Args:
        opened: the marker of the thought in which the text begins.
    """
    place = 0
    while True:
        if opened:
            place = text.find(_MARKERS[opened], place)
            if place < 0:
                return opened
        opening = _OPENING.search(text, place)
        if opening is None:
            return ""
        opened, place = opening[0], opening.end()


def _outside_thoughts(text: str, find: Find) -> list[Found]:
    """Return the calls whose beginnings are in no thought. Markers inside a call are part of its arguments."""
    found: list[Found] = []
    place = unopened = 0
    call, thought = find(text, 0), _thought(text, 0)
    while call or thought:
        if thought and (call is None or thought[0] <= call.start):
            start, end = thought
        else:
            assert call is not None
            start, end = call.start, call.end
            found.append(call)
        unopened, place = _last_closing(text, place, start) or unopened, end
        call = find(text, place) if call and call.start < place else call
        thought = _thought(text, place) if thought and thought[0] < place else thought
    unopened = _last_closing(text, place, len(text)) or unopened
    return [one for one in found if one.start >= unopened]


def _thought(text: str, place: int) -> tuple[int, int] | None:
    """Return the span of the first thought that opens from a place on; an open one goes to the end."""
    opening = _OPENING.search(text, place)
    if opening is None:
        return None
    closing = _MARKERS[opening[0]]
    end = text.find(closing, opening.end())
    return opening.start(), end + len(closing) if end >= 0 else len(text)


def _beginning(text: str) -> int:
    """Return where the text begins after a thought whose opening marker is not in it; 0 if there is none."""
    opening = _OPENING.search(text)
    return _last_closing(text, 0, opening.start() if opening else len(text))


def _last_closing(text: str, start: int, end: int) -> int:
    """Return where the last closing marker of a part ends; 0 if there is none."""
    return max((found.end() for found in _CLOSING.finditer(text, start, end)), default=0)
