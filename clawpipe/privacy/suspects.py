"""Which of many texts may hold a secret: one pass of Hyperscan over all of them at once, several times as fast as RE2.

Hyperscan reads PCRE's syntax, which means the same as RE2's in what the rules that ship are made of.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from functools import lru_cache

import hyperscan
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_FLAGS = (
    hyperscan.HS_FLAG_UTF8
    | hyperscan.HS_FLAG_MULTILINE  # each text is some lines of the block that is searched
    | hyperscan.HS_FLAG_PREFILTER  # what it cannot tell exactly counts as found
)
_BLOCK = 64 << 20  # characters at once


class Suspects:
    """Finds texts in which a pattern may occur. Not for use by several threads at once."""

    def __init__(self, patterns: tuple[str, ...]) -> None:
        self._database = _compiled(patterns) if patterns else None
        self._scratch = hyperscan.Scratch(self._database) if self._database else None

    def among(self, texts: Sequence[str]) -> dict[int, set[int]]:
        """Places of the suspects with the numbers of the patterns that may occur in them: all that do, and few others."""
        if not texts or not self._database:
            return {}
        if len(texts) > 1 and sum(map(len, texts)) > _BLOCK:
            half = len(texts) // 2
            return self.among(texts[:half]) | {half + place: numbers for place, numbers in self.among(texts[half:]).items()}
        joined, ends = _joined(texts)
        found = _Matches(ends)
        self._database.scan(joined, match_event_handler=found.add, scratch=self._scratch)
        return found.numbers


class _Matches:
    """Numbers of patterns by the place of the text in which they match. A match may end a million times in one text."""

    def __init__(self, ends: list[int]) -> None:
        self.numbers: dict[int, set[int]] = {}
        self._ends, self._last = ends, dict[int, tuple[int, int]]()

    def add(self, number: int, _start: int, end: int, _flags: int, _context: object) -> None:
        after, up_to = self._last.get(number, (0, -1))
        if after < end <= up_to:  # in the same text as the one before
            return
        place = bisect_left(self._ends, end)
        self._last[number] = (self._ends[place - 1] if place else -1, self._ends[place])
        self.numbers.setdefault(place, set()).add(number)


def _joined(texts: Sequence[str]) -> tuple[bytes, list[int]]:
    """The texts with a line end between two, and where each ends.

    A match lies in the text in which it ends: whatever goes over a text's end has another end within it, or is none. A vertical
    tab is space to Hyperscan and none to RE2, so another character that is no space stands for it.
    """
    lengths = pc.binary_length(pa.array(texts, pa.large_string())).to_numpy()  # pyright: ignore[reportAttributeAccessIssue]
    return "\n".join(texts).encode().replace(b"\v", b"\x1f"), (np.cumsum(lengths) + np.arange(len(texts))).tolist()


@lru_cache(maxsize=4)
def _compiled(patterns: tuple[str, ...]) -> hyperscan.Database:
    """It takes a fifth of a second."""
    database = hyperscan.Database()
    database.compile(
        expressions=[pattern.encode() for pattern in patterns],
        ids=list(range(len(patterns))),
        elements=len(patterns),
        flags=[_FLAGS] * len(patterns),
    )
    return database
