"""Split files into pieces that can be read in parallel: whole files, and ranges of lines of large ones.

The bytes of a file alone determine its pieces, not the number of readers: equal files make equal datasets.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from typing import IO

import msgspec

from clawpipe.data.importers.sources.arrays import begins_elements
from clawpipe.data.importers.sources.lines import Place
from clawpipe.data.ingest.intake.state import is_file, is_read_whole

RANGE = 4 << 20  # bytes; a range goes on to the end of its last line
_BLOCK = 1 << 20


class Piece(msgspec.Struct, frozen=True):
    """A file, or some of its lines.

    Attributes:
        path: bytes, because a name need not be UTF-8.
        known_as: the path under which the file is remembered.
        start, end: places in the file. `end` is None if the piece goes on to the end of the file.
        first, last: whether this is the first and the last piece of the file.
        grown: whether the piece is in the new part of a grown file.
        size: bytes, 0 if unknown.
    """

    path: bytes
    known_as: str
    start: Place = Place()
    end: Place | None = None
    first: bool = True
    last: bool = True
    grown: bool = False
    size: int = 0

    @property
    def file(self) -> str:
        return os.fsdecode(self.path)

    @property
    def whole(self) -> bool:
        return self.first and self.last


def pieces_of(file: str, known_as: str, start: Place, grown: bool) -> Iterator[Piece]:
    """Yield the pieces of a file from `start` on, in order."""
    file = os.path.realpath(file) if is_file(file) else file  # /dev/stdin differs from process to process
    path, first, left = os.fsencode(file), True, 0
    with suppress(OSError):  # the reader reports why the file cannot be read
        left = os.stat(file).st_size - start.offset if is_file(file) and os.path.isfile(file) else 0
        if left > 2 * RANGE and not is_read_whole(file) and not _holds_elements(file):
            with open(file, "rb") as stream:
                while left > 2 * RANGE and (end := _line_end_after(stream, start)) != start:  # equal: truncated meanwhile
                    yield Piece(path, known_as, start, end, first, False, grown, end.offset - start.offset)
                    start, left, first = end, left - (end.offset - start.offset), False
    yield Piece(path, known_as, start, None, first, True, grown, left)


def _holds_elements(file: str) -> bool:
    with open(file, "rb") as stream:
        return begins_elements(stream)


def _line_end_after(stream: IO[bytes], start: Place) -> Place:
    """Return the end of the line that holds the last of `RANGE` bytes from `start`."""
    stream.seek(start.offset)
    data = stream.read(RANGE)
    lines, length = data.count(b"\n"), len(data)
    while not data.endswith(b"\n") and (data := stream.readline(_BLOCK)):
        lines, length = lines + data.endswith(b"\n"), length + len(data)
    return Place(start.lines + lines, start.offset + length)
