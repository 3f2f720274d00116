"""Files and folders that hold records in a form of their own, each of which becomes a line with one object.

    *.eval                      an Inspect log: a zip archive with a file for each sample
    .aider.chat.history.md      Aider's chats, one behind the other, as Markdown
    events/event-00000-ID.json  a folder with a file for each event of OpenHands

A row's number counts from 1, its offset is its index.
"""

from __future__ import annotations

import json
import os
import re
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from itertools import groupby, pairwise
from pathlib import Path
from typing import IO

import orjson

from clawpipe.data.importers.sources.foreign import ForeignFileError
from clawpipe.data.importers.strict_json import MAX_LINE

AIDER = "aider_chat"  # field with the text of a chat
SUFFIX = ".eval"
_ZIP = b"PK\x03\x04"
_SAMPLES = "samples/"
_STARTED = re.compile(rb"^# aider chat started at (.*?)\r?$", re.MULTILINE)
_EVENT = re.compile(r"event-\d{5,}-[\w-]+\.json")
_HEAD = 1 << 12


def is_collected(file: str) -> bool:
    """Whether a path is such a file or folder.

    Raises:
        OSError: the file cannot be read.
    """
    if os.path.isdir(file):
        return True
    with open(file, "rb") as stream:
        return _reader_of(stream) is not None


def collected_rows(file: str) -> Iterator[bytes] | None:
    """Return the records of such a file or folder; None for any other.

    Raises:
        OSError: it cannot be read; also while the records are read.
    """
    if os.path.isdir(file):
        return (Path(event).read_bytes() for event in _events_in(file))
    with open(file, "rb") as stream:
        reader = _reader_of(stream)
        return iter(list(reader(stream))) if reader else None


def folded(files: Iterable[str]) -> list[str]:
    """Return files with each folder of numbered events in place of the files in it."""
    found = list[str]()
    for (folder, is_event), group in groupby(files, key=lambda file: (os.path.dirname(file), _is_event(file))):
        found += [folder] if is_event and folder else group
    return found


def _is_event(file: str) -> bool:
    return _EVENT.fullmatch(os.path.basename(file)) is not None


def _events_in(folder: str) -> list[str]:
    return sorted(os.path.join(folder, name) for name in os.listdir(folder) if _is_event(name))


def _reader_of(stream: IO[bytes]) -> Callable[[IO[bytes]], Iterator[bytes]] | None:
    head = stream.read(_HEAD)
    stream.seek(0)
    if _STARTED.match(head.lstrip()):
        return _chats
    return _samples if head.startswith(_ZIP) and _has_samples(stream) else None


def _has_samples(stream: IO[bytes]) -> bool:
    try:
        return any(name.startswith(_SAMPLES) for name in zipfile.ZipFile(stream).namelist())
    except zipfile.BadZipFile:
        return False


def _samples(stream: IO[bytes]) -> Iterator[bytes]:
    """Yield each sample of a log, with the log's `eval` beside its own fields.

    Raises:
        OSError: the archive is damaged, or packed in a way that Python does not know.
        ForeignFileError: its header is no JSON.
    """
    try:
        with zipfile.ZipFile(stream) as archive:
            header = _header(archive)
            for member in archive.infolist():
                if member.filename.startswith(_SAMPLES) and not member.is_dir():
                    with archive.open(member) as packed:  # no more of it than a line may have
                        yield _with_header(packed.read(MAX_LINE + 1), header)
    except (zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError, EOFError) as error:
        raise OSError(str(error)) from error


def _header(archive: zipfile.ZipFile) -> bytes:
    """Return the `eval` of the header. Inspect writes NaN for figures that it could not compute, which is no standard JSON."""
    found = next((name for name in ("header.json", "_journal/start.json") if name in archive.namelist()), None)
    try:
        header = json.loads(archive.read(found)) if found else {}
    except (ValueError, RecursionError) as error:
        raise ForeignFileError(f"a log of Inspect whose {found} is no JSON") from error
    return orjson.dumps((header.get("eval") if isinstance(header, dict) else None) or {})


def _with_header(sample: bytes, header: bytes) -> bytes:
    """Return the bytes of a sample with one more field; its own bytes stay as they are, to be checked like any line."""
    return sample.rstrip()[:-1] + b', "eval": ' + header + b"}" if sample.rstrip().endswith(b"}") else sample


def _chats(stream: IO[bytes]) -> Iterator[bytes]:
    data = stream.read()
    starts = list(_STARTED.finditer(data))
    for found, end in pairwise([*starts, None]):
        assert found is not None
        text = data[found.end() : len(data) if end is None else end.start()].decode("utf-8", "replace")
        yield orjson.dumps({AIDER: text, "started": found[1].decode("utf-8", "replace")})
