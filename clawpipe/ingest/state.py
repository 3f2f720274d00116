"""The state of ingest: how far each file has been read, and the datasets that were made of the files.

The state is one small file, `ingest/<name>.json` below the home, which is replaced atomically once the datasets are stored. A
killed run leaves the state of the run before it; the next run reads the same lines, and makes the same datasets.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from clawpipe.errors import ConfigError, DataError
from clawpipe.importers.sources.collected import is_collected
from clawpipe.importers.sources.lines import STDIN, Place, is_pipe, shown
from clawpipe.importers.sources.packed import is_packed
from clawpipe.importers.sources.tables import HUB, is_table
from clawpipe.importers.sources.urls import is_url, name_of, version_of
from clawpipe.store.datasets import dataset_ref
from clawpipe.store.files import exclusive, write_atomic
from clawpipe.store.home import Home
from clawpipe.store.open import open_store
from clawpipe.store.parts import PART_ROWS
from clawpipe.store.refs import DatasetRef
from clawpipe.store.rewrite import compact

_BLOCK = 1 << 20
_UNUSED: Mapping[str, frozenset[str]] = {}
_BEGINNING = 32  # hex digits
_MANY = 8  # fewer are not worth new digests, which make the steps that read them run again


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


def state_path(home: Home, name: str) -> Path:
    return home.root / "ingest" / f"{name}.json"


def logs(home: Home) -> dict[str, IngestState]:
    """Return every log of the home, by name.

    Raises:
        DataError: a log is damaged.
    """
    return {path.stem: load(path) for path in sorted((home.root / "ingest").glob("*.json"))}


def load(path: Path) -> IngestState:
    """Load the state from a file; an empty one if there is no file.

    Raises:
        DataError: the file is damaged.
    """
    try:
        return IngestState.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        return IngestState()
    except ValidationError as error:
        raise DataError("the log of what was ingested is damaged", str(path), "remove it, and everything is read again") from error


def save(path: Path, state: IngestState) -> None:
    write_atomic(path, state.model_dump_json(indent=1).encode())


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


class Joined(BaseModel):
    """The small datasets (`digests`) of a log that were joined into one."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    log: str
    name: str
    digests: list[str]
    into: str | None
    rows: int


def compact_imports(home: Home, used: Mapping[str, frozenset[str]] = _UNUSED, *, dry_run: bool = False) -> list[Joined]:
    """Join runs of eight or more small datasets in each log of ingest.

    The old datasets stay until nothing refers to them. A digest keeps its meaning: nights and settings that name an old dataset
    still read exactly its rows.

    Args:
        used: by digest, the models that nights have used a dataset for; only datasets that were used alike are joined.

    Raises:
        BusyError: an ingest is running.
        DataError: a log or a dataset is damaged.
    """
    with exclusive(home.locks / "ingest.lock", f"ingest into the home {home.root}"):
        return [joined for name, state in logs(home).items() for joined in _compact_log(home, name, state, used, dry_run)]


def _compact_log(home: Home, log: str, state: IngestState, used: Mapping[str, frozenset[str]], dry_run: bool) -> list[Joined]:
    store, done = open_store(home), list[Joined]()
    for name, digests in state.datasets.items():
        for run in _runs([dataset_ref(store, name, digest) for digest in digests], used):
            if len(run) >= _MANY:
                into = None if dry_run else compact(store, run).digest
                old = [ref.digest for ref in run]
                done.append(Joined(log=log, name=name, digests=old, into=into, rows=sum(ref.rows for ref in run)))
    if done and not dry_run:
        save(state_path(home, log), _renamed(state, done))
    return done


def _renamed(state: IngestState, done: Sequence[Joined]) -> IngestState:
    """Return the log with each joined dataset in the place of its parts."""
    into = {(one.name, digest): one.into or digest for one in done for digest in one.digests}
    datasets = {
        name: list(dict.fromkeys(into.get((name, digest), digest) for digest in digests))
        for name, digests in state.datasets.items()
    }
    parts = {one.into: [part for digest in one.digests for part in state.parts(digest)] for one in done if one.into}
    return state.model_copy(update={"datasets": datasets, "joined": {**state.joined, **parts}})


def _runs(refs: Sequence[DatasetRef], used: Mapping[str, frozenset[str]]) -> Iterator[list[DatasetRef]]:
    """Yield the datasets in order: runs of small ones with one schema that were used alike together, any other alone."""
    alike = groupby(refs, key=lambda ref: (ref.rows < PART_ROWS, ref.schema_version, used.get(ref.digest, frozenset())))
    for (small, *_), run in alike:
        if small:
            yield list(run)
        else:
            yield from ([ref] for ref in run)
