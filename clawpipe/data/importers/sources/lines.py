"""Find files and read their lines: folders, patterns, URLs, pipes and tables, packed or not."""

from __future__ import annotations

import glob
import io
import os
import stat
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import islice
from pathlib import Path
from typing import IO, cast

from clawpipe.data.importers.sources.arrays import Elements, read_array
from clawpipe.data.importers.sources.collected import SUFFIX, collected_rows, folded
from clawpipe.data.importers.sources.foreign import refuse_foreign
from clawpipe.data.importers.sources.packed import BROKEN, PACKED, rewound, unpacked
from clawpipe.data.importers.sources.tables import HUB, TABLES, holds_rows, is_table, read_rows
from clawpipe.data.importers.sources.urls import copied, files_at, is_url, name_of
from clawpipe.data.importers.strict_json import MAX_LINE, RefusedError
from clawpipe.errors import NotFoundError

_ANY_DEPTH = "**"
STDIN = "-"
UNREADABLE = (OSError, *BROKEN)
SUFFIXES = (".jsonl", ".json", ".ndjson", ".traj")
_IN_FOLDERS = (*(suffix + packed for suffix in SUFFIXES for packed in ("", *PACKED)), *TABLES, SUFFIX)
_BLOCK = 1 << 20


def files_below(folder: str, hidden: bool = False) -> list[str]:
    """Return the files in a folder and below it, in order.

    A folder behind links counts once, under its own name if it has one. Broken links and folders that cannot be listed are
    returned like files: their reader reports the error.

    Args:
        folder: where to look.
        hidden: include names that begin with a dot.
    """
    return sorted(_walk(folder, hidden))


def matching(pattern: str) -> list[str]:
    """Return the files that match a shell pattern, in order; `**` stands for any number of folders."""
    parts = pattern.split("/")
    if _ANY_DEPTH not in parts:
        return sorted(file for file in glob.glob(pattern) if os.path.isfile(file))
    deep = parts.index(_ANY_DEPTH)
    before, wanted = "/".join(parts[:deep]), parts[deep:]
    folders = glob.glob(before) if before else ["/" if deep else "."]
    hidden = any(part.startswith(".") for part in wanted)
    files = [(folder, file) for folder in folders for file in files_below(folder, hidden) if os.path.isfile(file)]
    return sorted(file.removeprefix("./") for folder, file in files if _fits(os.path.relpath(file, folder).split("/"), wanted))


def _walk(folder: str, hidden: bool) -> Iterator[str]:
    folders, links, seen = [folder], list[str](), set[str]()
    while folders or links:
        one = folders.pop() if folders else links.pop()
        if (real := os.path.realpath(one)) in seen:
            continue
        seen.add(real)
        try:
            names = sorted(os.listdir(one))
        except OSError:
            yield one
            continue
        for path in (os.path.join(one, name) for name in names if hidden or not name.startswith(".")):
            if os.path.isdir(path):
                (links if os.path.islink(path) else folders).append(path)
            elif os.path.isfile(path) or not os.path.exists(path):
                yield path


def _fits(parts: Sequence[str], wanted: Sequence[str]) -> bool:
    if not wanted:
        return not parts
    if wanted[0] == _ANY_DEPTH:
        visible = next((number for number, part in enumerate(parts) if part.startswith(".")), len(parts))
        return any(_fits(parts[number:], wanted[1:]) for number in range(visible + 1))
    shown = bool(parts) and (wanted[0].startswith(".") or not parts[0].startswith("."))
    return shown and fnmatchcase(parts[0], wanted[0]) and _fits(parts[1:], wanted[1:])


class BrokenOffError(OSError):
    """A download ended early; a later attempt may get more."""


@dataclass(frozen=True)
class Line:
    """One line without its newline. `offset` is the offset of its first byte in the unpacked file; `number` counts from 1.

    A line beyond the limit has its first bytes only and `whole` False: it is refused, and never held in memory. `end` is the offset
    of the next line; `ended` is False if the line has no newline, and may still grow. `fault` says why a row, which
    cannot be converted, has no bytes.
    """

    file: str
    number: int
    offset: int
    data: bytes
    whole: bool = True
    end: int = 0
    ended: bool = True
    fault: str = ""


@dataclass(frozen=True)
class Place:
    """A place in a file: the number of lines and of unpacked bytes before it."""

    lines: int = 0
    offset: int = 0


def find_files(paths: Sequence[str]) -> list[str]:
    """Return the files of the arguments, in order and once each; a folder stands for the JSON Lines files and tables below it.

    Raises:
        NotFoundError: a path or pattern matches nothing.
        ConfigError, BusyError: the storage at a URL refuses, or does not answer.
    """
    found = [file for path in paths for file in _expand(path)]
    return list(dict.fromkeys(folded(found)))


def shown(file: str) -> str:
    """Return the name of a file as text: bytes that are not UTF-8 as `\\xNN`, a URL without secrets."""
    if is_url(file):
        return name_of(file)
    return os.fsencode(file).decode("utf-8", "backslashreplace")


def _expand(path: str) -> list[str]:
    if path == STDIN or path.startswith(HUB) or Path(path).is_file() or is_pipe(path):
        return [path]
    if is_url(path):
        files = files_at(path, lambda file: file.lower().endswith(_IN_FOLDERS))
    else:
        files = list(filter(_counts, files_below(path))) if Path(path).is_dir() else matching(path)
    if not files:
        counted = ", ".join((*SUFFIXES, *TABLES))
        raise NotFoundError("no file to ingest", shown(path), f"name files, folders or patterns; in folders {counted} count")
    return files


def is_pipe(file: str) -> bool:
    """Whether a file is a named pipe, or one of the shell's `<(command)`, and can be read once only."""
    try:
        return stat.S_ISFIFO(os.stat(file).st_mode)
    except (OSError, ValueError):
        return False


def _counts(file: str) -> bool:
    """Whether a file in a folder holds lines or rows; a broken link counts, because it might lead to a folder of them."""
    if file.lower().endswith(_IN_FOLDERS):
        return holds_rows(file)
    return not Path(file).suffix and not Path(file).is_file()


def read_lines(file: str, offset: int = 0, lines: int = 0, known_as: str | None = None, end: int | None = None) -> Iterator[Line]:
    """Yield the lines of one file, unpacked; blank ones too, so that numbers match those of an editor.

    In a file with one JSON array of objects, or with indented objects, each element is a line.

    Args:
        offset: where to begin, in unpacked bytes; for a table, and for what is collected, `lines` counts.
        lines: the number of lines before that.
        known_as: the file name in the lines; by default `file`, without a URL's secrets.
        end: where to stop: the beginning of the first line that is not read.

    Raises:
        OSError, EOFError, zlib.error, lzma.LZMAError: the file cannot be read, or not to its end.
        ForeignFileError: it holds something else than records, such as an archive.
        BrokenOffError: a download ended early.
        NotFoundError, ConfigError, BusyError: a URL cannot be read.
    """
    name = known_as or (name_of(file) if is_url(file) else file)
    if is_url(file):
        yield from _downloaded_lines(file, name)
    elif is_table(file):
        yield from _row_lines(read_rows(file), lines, name)
    elif (rows := _collected(file)) is not None:
        yield from _row_lines(rows, lines, name)
    else:
        with _opened(file) as stream:
            refuse_foreign(_head(stream))
            array = _array(stream)
            yield from _elements(name, array, offset) if array else _lines(rewound(stream), name, Place(lines, offset), end)


def _downloaded_lines(url: str, name: str) -> Iterator[Line]:
    """Yield the lines of a download; only whole lines if it ends early."""
    with copied(url) as copy:
        yield from (line for line in read_lines(copy.path, known_as=name) if line.ended or not copy.broken)
        if copy.broken:
            raise BrokenOffError(str(copy.broken)) from copy.broken


def _lines(stream: IO[bytes], name: str, start: Place, end: int | None) -> Iterator[Line]:
    number, offset = start.lines, start.offset
    _skip(stream, offset)
    while (end is None or offset < end) and (data := stream.readline(MAX_LINE + 2)):
        number, begin = number + 1, offset
        offset += len(data)
        whole, ended = data.endswith(b"\n") or len(data) <= MAX_LINE, data.endswith(b"\n")
        if not whole:
            skipped, ended = _skip_rest(stream)
            offset += skipped
        yield Line(name, number, begin, data.rstrip(b"\r\n"), whole, offset, ended)


def _collected(file: str) -> Iterator[bytes] | None:
    """Return the rows of a file or folder that holds records in a form of its own; None for a stream and for any other file."""
    return None if file == STDIN or is_pipe(file) else collected_rows(file)


def _row_lines(rows: Iterator[bytes] | Iterator[bytes | RefusedError], lines: int, name: str) -> Iterator[Line]:
    for index, row in enumerate(islice(rows, lines, None), lines):
        data, fault = (b"", str(row)) if isinstance(row, RefusedError) else (row, "")
        yield Line(name, index + 1, index, data[: MAX_LINE + 1], len(data) <= MAX_LINE, index + 1, fault=fault)


def _head(stream: IO[bytes]) -> bytes:
    """Return the first bytes of a stream, which stay in it; none if it cannot be read, which reading its lines will report."""
    try:
        return stream.peek()  # pyright: ignore[reportAttributeAccessIssue]
    except UNREADABLE:
        return b""


def _array(stream: IO[bytes]) -> Elements | None:
    """Return the elements of the file; None if it holds lines, or cannot be read, which reading its lines will report."""
    try:
        return read_array(stream, UNREADABLE)
    except UNREADABLE:
        return None


def _elements(file: str, array: Elements, offset: int) -> Iterator[Line]:
    """Yield the elements after the one that ends at `offset`; all of them if none does, because half an array was read as lines."""
    data, spans, broken = array
    known = next((number for number, (_, end) in enumerate(spans, 1) if end == offset), 0)
    for number, (begin, end) in enumerate(spans[known:], known + 1):
        yield Line(file, number, begin, data[begin : min(end, begin + MAX_LINE + 1)], end - begin <= MAX_LINE, end)
    if broken:
        raise broken


def _skip(stream: IO[bytes], count: int) -> None:
    if count and stream.seekable():
        stream.seek(count)
        return
    while count and (data := stream.read(min(count, _BLOCK))):
        count -= len(data)


def _skip_rest(stream: IO[bytes]) -> tuple[int, bool]:
    """Skip to the end of the line; return the number of bytes, and whether the line has a newline."""
    skipped = 0
    while data := stream.readline(_BLOCK):
        skipped += len(data)
        if data.endswith(b"\n"):
            return skipped, True
    return skipped, False


@contextmanager
def _opened(file: str) -> Iterator[IO[bytes]]:
    """Open a file and unpack it."""
    with _open(file) as stream:
        yield unpacked(stream, file)


def _open(file: str) -> IO[bytes]:
    if file != STDIN:
        return open(file, "rb")
    return io.BufferedReader(cast(io.RawIOBase, open(0, "rb", buffering=0, closefd=False))) if sys.stdin else io.BytesIO()
