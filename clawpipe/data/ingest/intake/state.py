"""The state of ingest: how far each file has been read, and the datasets that were made of the files.

The state is one small file, `ingest/<name>.json` of the home, which its machines share. It is replaced atomically once the datasets
are stored. A killed run leaves the state of the run before it; the next run reads the same lines, and makes the same datasets.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from clawpipe.core.ledger.lease import lease
from clawpipe.core.store.files import exclusive
from clawpipe.core.store.home import Home
from clawpipe.core.store.home_file import HomeFile, shared_files
from clawpipe.core.store.machines import shared_objects
from clawpipe.core.store.open import open_store
from clawpipe.data.importers.sources.collected import is_collected
from clawpipe.data.importers.sources.lines import STDIN, Place, is_pipe, shown
from clawpipe.data.importers.sources.packed import is_packed
from clawpipe.data.importers.sources.tables import HUB, is_table
from clawpipe.data.importers.sources.urls import is_url, name_of, version_of
from clawpipe.errors import ConfigError, DataError

INGEST_LOCK = "ingest.lock"
_FOLDER, _SUFFIX = "ingest", ".json"
_BLOCK = 1 << 20
_BEGINNING = 32  # hex digits


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class FileCursor(_Record):
    """How far a file was read: `offset` bytes with `sha256`, and `lines` lines; and the file's `size` and `mtime` (ns) then."""

    size: int
    mtime: int
    offset: int
    lines: int
    sha256: str

    def with_more(self) -> FileCursor:
        """Return a mark with which the rest of the file is read next time, even if the file does not change."""
        return self.model_copy(update={"mtime": 0})


class Version(_Record):
    """The version that a server reported for a file at a URL."""

    version: str

    def with_more(self) -> Version:
        return Version(version="")


class IngestState(_Record):
    """One log: `files` by absolute path, or by URL without secrets; `datasets` holds digests by name, oldest first.

    `joined` holds for a joined dataset the beginnings of its parts' digests: whole ones would keep the parts in the store.
    """

    files: dict[str, FileCursor | Version] = {}
    datasets: dict[str, list[str]] = {}
    joined: dict[str, list[str]] = {}

    def parts(self, digest: str) -> list[str]:
        """Return the first digits of the digests of the parts of a joined dataset; for any other dataset, those of its own
        digest."""
        return self.joined.get(digest, [digest[:_BEGINNING]])

    def without(self, files: Iterable[str]) -> IngestState:
        """Return a copy without the marks of these files; the datasets stay."""
        left = set(files)
        return self.model_copy(update={"files": {name: mark for name, mark in self.files.items() if name not in left}})

    def with_run(self, marks: Mapping[str, FileCursor | Version], made: Mapping[str, str]) -> IngestState:
        """Return a copy with the marks and datasets (digest by name) of one more run."""
        names = [*self.datasets, *(name for name in made if name not in self.datasets)]
        added = {name: [made[name]] if name in made else [] for name in names}
        datasets = {name: list(dict.fromkeys([*self.datasets.get(name, []), *added[name]])) for name in names}
        return self.model_copy(update={"files": {**self.files, **marks}, "datasets": datasets})


class Unread(_Record):
    """The new part of a file, from `start` on; `grown` is False if the file is read from its beginning."""

    start: Place = Place()
    grown: bool = False


def log_file(home: Home, name: str) -> HomeFile:
    return _file_at(home, f"{_FOLDER}/{name}{_SUFFIX}")


def log_files(home: Home) -> list[HomeFile]:
    """Return the file of every log of the home, by the order of their names."""
    return [_file_at(home, path) for path in shared_files(home, _FOLDER, _SUFFIX)]


def logs(home: Home) -> dict[str, IngestState]:
    """Return every log of the home, by name.

    Raises:
        DataError: a log is damaged.
        BusyError: machines share the home, and their storage does not answer.
    """
    return {Path(path).stem: load(_file_at(home, path)) for path in shared_files(home, _FOLDER, _SUFFIX)}


def load(file: HomeFile) -> IngestState:
    """Load a log; an empty one if there is no file.

    Raises:
        DataError: the file is damaged.
    """
    data = file.read()
    try:
        return IngestState() if data is None else IngestState.model_validate_json(data)
    except ValidationError as error:
        raise DataError("the log of what was ingested is damaged", file.where, "remove it, and everything is read again") from error


def save(file: HomeFile, state: IngestState) -> None:
    """Replace the log that was loaded from the same object.

    Raises:
        ChangedError: another machine has changed it since.
    """
    file.write(state.model_dump_json(indent=1).encode())


@contextmanager
def ingesting(home: Home, wait: bool = False, waits: Callable[[str], None] | None = None) -> Iterator[None]:
    """Hold the home's logs against other processes and machines.

    Args:
        waits: called with the holder's name if it has to wait.

    Raises:
        InUseError: another one holds them and `wait` is False.
    """
    what = f"ingest into the home {home.root}"
    with exclusive(home.locks / INGEST_LOCK, what, wait=wait, waits=waits), no_other_machine_ingests(wait, waits):
        yield


def no_other_machine_ingests(wait: bool = False, waits: Callable[[str], None] | None = None) -> AbstractContextManager[object]:
    """Hold the home's logs against other machines; arguments and errors: see `ingesting`."""
    shared = shared_objects()
    if shared is None:
        return nullcontext()
    return lease(shared, "locks/ingest", "ingest into this home", (waits or _silently) if wait else None)


def _silently(_: str) -> None: ...


def _file_at(home: Home, path: str) -> HomeFile:
    return HomeFile(home, path, lambda data: _share_datasets(home, data))


def _share_datasets(home: Home, log: bytes) -> None:
    """Let the other machines find the datasets of a log that they are about to find."""
    store = open_store(home)
    for name, digests in IngestState.model_validate_json(log).datasets.items():
        for digest in digests:
            store.share(name, digest)


def unread(file: str, mark: FileCursor | Version | None) -> Unread | None:
    """Return the part of `file` that has to be read; None if nothing is new.

    A file is new from its start if it is packed and has changed, if its known bytes have changed, or if its URL has another
    version.
    """
    state = stat_of(file) if mark else None
    if mark is None or state is None:
        return Unread()
    if isinstance(mark, Version) or isinstance(state, Version):
        return None if state == mark else Unread()
    if (state.st_size, state.st_mtime_ns) == (mark.size, mark.mtime):
        return None
    if state.st_size < mark.offset or prefix_sha256(file, mark.offset) != mark.sha256:
        return Unread()
    if is_read_whole(file):
        return None if state.st_size == mark.offset else Unread()
    offset = mark.offset + _line_end(file, mark.offset)
    return Unread(start=Place(mark.lines, offset), grown=offset > 0) if state.st_size > offset else None


def is_file(name: str) -> bool:
    """Whether a name is a local file, and not a stream, a URL, or a dataset of a hub."""
    return name != STDIN and not name.startswith(HUB) and not is_url(name) and not is_pipe(name)


def stat_of(name: str) -> os.stat_result | Version | None:
    """Return the state of a readable local file, or the version of a file at a URL; None if there is neither."""
    if is_url(name):
        version = version_of(name)
        return Version(version=version) if version else None
    return os.stat(name) if is_file(name) and os.access(name, os.R_OK) and os.path.isfile(name) else None


def mark_of(file: str, before: os.stat_result | Version, read: Place) -> FileCursor | Version:
    """Return the mark of a file that was read up to a place; a packed one was read whole.

    Args:
        before: the state of the file when reading began, so that later writes count as changes.
    """
    if isinstance(before, Version):
        return before
    offset = before.st_size if is_read_whole(file) else read.offset
    sha256 = prefix_sha256(file, offset)
    return FileCursor(size=before.st_size, mtime=before.st_mtime_ns, offset=offset, lines=read.lines, sha256=sha256)


def absolute(files: Iterable[str]) -> dict[str, str]:
    """Return the given files by the path under which they are remembered; a file named twice counts once.

    Raises:
        ConfigError: two URLs differ only in their signatures.
    """
    found: dict[str, str] = {}
    for file in files:
        known = found.setdefault(_absolute(file), file)
        if is_url(file) and known != file:
            raise ConfigError("two URLs differ only in what seems to be a signature", name_of(file), "name one of them")
    return found


def _absolute(file: str) -> str:
    if is_pipe(file):
        return shown(os.path.abspath(file))
    return shown(os.path.realpath(file) if is_file(file) else file)


def is_read_whole(file: str) -> bool:
    """Whether a file can only be read from its beginning."""
    return is_table(file) or is_packed(file) or is_collected(file)


def _line_end(file: str, offset: int) -> int:
    """Return the length of the newline of a line that was read before it had one."""
    with open(file, "rb") as stream:
        stream.seek(max(offset - 1, 0))
        last, following = stream.read(min(offset, 1)), stream.read(2)
    if last in (b"", b"\n"):
        return 0
    return 2 if following == b"\r\n" else int(following[:1] == b"\n")


def prefix_sha256(file: str, length: int) -> str:
    """Return the sha256 of the first `length` bytes of a file; of all of them if there are fewer."""
    digest, left = hashlib.sha256(), length
    with open(file, "rb") as stream:
        while left and (block := stream.read(min(_BLOCK, left))):
            digest.update(block)
            left -= len(block)
    return digest.hexdigest()
