"""Read a file of any size in windows that overlap, so that what is looked for lies in one of them as a whole."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

WINDOW = 1 << 22  # bytes


@dataclass(frozen=True)
class Window:
    """A part of a file; `first` and `last` say whether the file begins and ends with it."""

    data: bytes
    first: bool = True
    last: bool = True

    def matches(self, pattern: re.Pattern[bytes]) -> bool:
        """Whether the pattern matches, not counting a beginning or an end that only the window has."""
        start = 0
        while found := pattern.search(self.data, start):
            if (self.first or found.start()) and (self.last or found.end() < len(self.data)):
                return True
            start = found.start() + 1
        return False


def windows(file: Path, longest: int, size: int = WINDOW) -> Iterator[Window]:
    """Yield the windows of a file; none of an empty one.

    Args:
        longest: bytes of the longest text that is looked for; a pattern may look at one byte before and after it.
        size: bytes that are read at a time.
    """
    overlap = longest + 3  # so that a match in it does not touch the end of the window before
    with file.open("rb") as stream:
        data, first, block = b"", True, stream.read(size)
        while block:
            data += block
            block = stream.read(size)
            yield Window(data, first, not block)
            data, first = data[-overlap:], first and len(data) <= overlap
