"""Find texts in which a pattern may occur: Hyperscan searches many texts for all patterns in one pass."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from functools import lru_cache

import hyperscan
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

_FLAGS = (
    hyperscan.HS_FLAG_UTF8
    | hyperscan.HS_FLAG_MULTILINE  # each text is some lines of the searched block
    | hyperscan.HS_FLAG_PREFILTER  # uncertain matches count as found
)
_BLOCK = 64 << 20  # characters at once


class Search(Struct, frozen=True):
    """Patterns, and their database as Hyperscan serialises it, which another process loads instead of compiling them again."""

    patterns: tuple[str, ...]
    database: bytes


class Suspects:
    """Finds texts in which a pattern may occur. Not thread-safe.

    Args:
        compiled: the search of these patterns, if another process has compiled them; one of other patterns is ignored.
    """

    def __init__(self, patterns: tuple[str, ...], compiled: Search | None = None) -> None:
        self._patterns, self._database = patterns, _database(patterns, compiled) if patterns else None
        self._scratch = hyperscan.Scratch(self._database) if self._database else None

    @property
    def search(self) -> Search | None:
        """What another process needs for the same search."""
        return Search(self._patterns, hyperscan.dumpb(self._database)) if self._database else None

    def among(self, texts: Sequence[str]) -> dict[int, set[int]]:
        """Return the indices of texts with the patterns that may occur in them: all that do, and few others."""
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
    """Collects the patterns that match each text. A pattern may match a million times in one text."""

    def __init__(self, ends: list[int]) -> None:
        self.numbers: dict[int, set[int]] = {}
        self._ends, self._last = ends, dict[int, tuple[int, int]]()

    def add(self, number: int, _start: int, end: int, _flags: int, _context: object) -> None:
        after, up_to = self._last.get(number, (0, -1))
        if after < end <= up_to:  # in the same text as the match before
            return
        place = bisect_left(self._ends, end)
        self._last[number] = (self._ends[place - 1] if place else -1, self._ends[place])
        self.numbers.setdefault(place, set()).add(number)


def _joined(texts: Sequence[str]) -> tuple[bytes, list[int]]:
    """Join the texts by line feeds, and return the end of each.

    A match belongs to the text in which it ends: a match across a text's end has another end within the text, or is invalid. A
    vertical tab, which is a space for Hyperscan but not for RE2, is replaced by another control character.
    """
    joined = "\n".join(texts)
    block = joined.encode()
    if len(block) == len(joined):
        lengths = np.fromiter(map(len, texts), np.int64, len(texts))
    else:
        lengths = pc.binary_length(pa.array(texts, pa.large_string())).to_numpy()  # pyright: ignore[reportAttributeAccessIssue]
    return block.replace(b"\v", b"\x1f"), (np.cumsum(lengths) + np.arange(len(texts))).tolist()


def _database(patterns: tuple[str, ...], compiled: Search | None) -> hyperscan.Database:
    if compiled and compiled.patterns == patterns:
        return hyperscan.loadb(compiled.database, hyperscan.HS_MODE_BLOCK)
    return _compiled(patterns)


@lru_cache(maxsize=4)
def _compiled(patterns: tuple[str, ...]) -> hyperscan.Database:
    """Compile the patterns, which takes most of a second."""
    database = hyperscan.Database()
    database.compile(
        expressions=[pattern.encode() for pattern in patterns],
        ids=list(range(len(patterns))),
        elements=len(patterns),
        flags=[_FLAGS] * len(patterns),
    )
    return database
