"""Where lines come from: files, folders, patterns, compressed files and standard input; each line with its place."""

from __future__ import annotations

import glob
import gzip
import io
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, cast

import zstandard

from clawpipe.errors import NotFoundError
from clawpipe.importers.strict import MAX_LINE

STDIN = "-"
SUFFIXES = (".jsonl", ".json", ".ndjson")
_COMPRESSED = ("", ".gz", ".zst")


@dataclass(frozen=True)
class Line:
    """One line without its end. `offset` is that of its first byte in the (decompressed) file; `number` counts from 1.

    A line beyond the limit comes with its first bytes only and `whole` False: it is refused, and never held in memory.
    """

    file: str
    number: int
    offset: int
    data: bytes
    whole: bool = True


def find_files(paths: Sequence[str]) -> list[str]:
    """Files behind the arguments, in order and once each; a folder stands for the JSON Lines files below it.

    Raises:
        NotFoundError: a path or pattern that matches nothing.
    """
    found = [file for path in paths for file in _expand(path)]
    return list(dict.fromkeys(found))


def _expand(path: str) -> list[str]:
    if path == STDIN:
        return [STDIN]
    if Path(path).is_file():
        return [path]
    pattern = f"{glob.escape(path)}/**/*" if Path(path).is_dir() else path
    files = sorted(file for file in glob.glob(pattern, recursive=True) if Path(file).is_file())
    if Path(path).is_dir():
        files = [file for file in files if any(file.endswith(suffix + end) for suffix in SUFFIXES for end in _COMPRESSED)]
    if not files:
        raise NotFoundError("no file to ingest", path, f"name files, folders or patterns; in folders {', '.join(SUFFIXES)} count")
    return files


def read_lines(file: str) -> Iterator[Line]:
    """Lines of one file, decompressed by its suffix; blank ones too, so that numbers are those an editor shows.

    Raises:
        OSError, EOFError, zstandard.ZstdError: the file cannot be read, or not to its end.
    """
    with _open(file) as stream:
        number, offset = 0, 0
        while data := stream.readline(MAX_LINE + 2):
            number, start = number + 1, offset
            offset += len(data)
            whole = data.endswith(b"\n") or len(data) <= MAX_LINE
            if not whole:
                offset += _skip_rest(stream)
            yield Line(file, number, start, data.rstrip(b"\r\n"), whole)


def _skip_rest(stream: IO[bytes]) -> int:
    """Read to the end of the line; how many bytes that were."""
    skipped = 0
    while data := stream.readline(1 << 20):
        skipped += len(data)
        if data.endswith(b"\n"):
            break
    return skipped


def _open(file: str) -> IO[bytes]:
    if file == STDIN:
        return io.BufferedReader(cast(io.RawIOBase, open(0, "rb", buffering=0, closefd=False))) if sys.stdin else io.BytesIO()
    if file.endswith(".gz"):
        return cast(IO[bytes], gzip.open(file, "rb"))
    if file.endswith(".zst"):
        raw = open(file, "rb")  # noqa: SIM115  # closed with the reader
        return io.BufferedReader(zstandard.ZstdDecompressor().stream_reader(raw, read_across_frames=True, closefd=True))
    return open(file, "rb")
