"""Ingest files: read each new line once, and store it in datasets."""

from __future__ import annotations

import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from clawpipe.core.store.artifacts import Store
from clawpipe.core.store.home import Home
from clawpipe.core.store.home_file import HomeFile
from clawpipe.core.store.open import open_store
from clawpipe.core.store.refs import DatasetRef
from clawpipe.core.store.replaced import current_digest
from clawpipe.core.system import faults
from clawpipe.data.forgotten.tombstones import read_tombstones
from clawpipe.data.importers.read.reading import Reading
from clawpipe.data.importers.sources.lines import Place, find_files
from clawpipe.data.ingest.intake.intake import Intake
from clawpipe.data.ingest.intake.options import Options
from clawpipe.data.ingest.intake.pieces import Piece, pieces_of
from clawpipe.data.ingest.intake.state import (
    FileCursor,
    IngestState,
    Unread,
    Version,
    absolute,
    ingesting,
    load,
    log_file,
    mark_of,
    prefix_sha256,
    save,
    stat_of,
    unread,
)
from clawpipe.errors import BusyError


@dataclass
class Ingested:
    """The result of one run.

    Attributes:
        of_files: counts of each file with new conversations.
        datasets: datasets of this run, by name; `trajectories` always, the others if they have rows.
        parts: digests of the datasets of all runs with these options, including this one, by name.
        skipped: files without new lines.
        log: where the log of all runs lies.
    """

    reading: Reading
    refused: Counter[str]
    counts: Counter[str]
    of_files: Mapping[str, Counter[str]]
    redactions: Counter[str]
    datasets: dict[str, DatasetRef]
    parts: dict[str, list[str]]
    read: list[str]
    skipped: list[str]
    log: str
    unused_labels: int

    @property
    def accepted(self) -> int:
        return self.reading.lines - self.refused.total()


@dataclass(frozen=True)
class _Part:
    """A file, its new part, and its state and digest before reading."""

    file: str
    known_as: str
    new: Unread | None
    before: os.stat_result | Version | None
    sha256: str = ""

    @classmethod
    def of(cls, file: str, known_as: str, mark: FileCursor | Version | None) -> _Part:
        new, before = unread(file, mark), stat_of(file)
        size = before.st_size if new and isinstance(before, os.stat_result) else 0
        return cls(file, known_as, new, before, prefix_sha256(file, size) if size else "")

    @property
    def size(self) -> int:
        """The number of new bytes, 0 if unknown."""
        return self.before.st_size - self.new.start.offset if isinstance(self.before, os.stat_result) and self.new else 0

    def mark(self, read: Place) -> FileCursor | Version | None:
        """Return the mark of the file; None if it is gone, or was rewritten meanwhile."""
        try:
            return mark_of(self.file, self.before, read) if self.before and self._is_unchanged() else None
        except OSError:
            return None

    def _is_unchanged(self) -> bool:
        """Whether the file has at most grown since reading began."""
        if not isinstance(self.before, os.stat_result):
            return True
        now = os.stat(self.file)
        touched = (now.st_dev, now.st_ino, now.st_mtime_ns) != (self.before.st_dev, self.before.st_ino, self.before.st_mtime_ns)
        return not touched or self.sha256 == (prefix_sha256(self.file, self.before.st_size) if self.before.st_size else "")

    def pieces(self) -> Iterator[Piece]:
        return pieces_of(self.file, self.known_as, self.new.start, self.new.grown) if self.new else iter(())


def ingest(
    home: Home, paths: Sequence[str], options: Options, *, again: bool = False, waits: Callable[[str], None] | None = None
) -> Ingested:
    """Read the new lines of files, folders, patterns or standard input, and store them. A second ingest waits for the first.

    Args:
        again: read known files from the start. Stored rows stay; rejected lines are tried again.
        waits: called with the reason if ingest has to wait.

    Raises:
        NotFoundError: a path matches nothing.
        ConfigError: the format or the file of labels does not exist, or the home's `privacy.yaml` or `sessions.yaml` is wrong.
        DataError: the log of earlier runs, a file of labels, or the list of tombstones is damaged.
        BusyError: the shared store does not answer.
    """
    with ingesting(home, wait=True, waits=waits):
        store, files, log = open_store(home), find_files(paths), log_file(home, options.name)
        state = _intact(store, load(log))
        if again:
            state = state.without(absolute(files))
        work = home.root / "ingest" / f"{options.name}.work"  # not in home.work, which a night that ends removes
        shutil.rmtree(work, ignore_errors=True)  # what a killed run left
        try:
            return _ingest(home, store, work, files, options, state, log)
        finally:
            shutil.rmtree(work, ignore_errors=True)


def _ingest(
    home: Home, store: Store, work: Path, files: Sequence[str], options: Options, state: IngestState, log: HomeFile
) -> Ingested:
    parts = [_Part.of(file, name, state.files.get(name)) for name, file in absolute(files).items()]
    new = [part for part in parts if part.new is not None]
    with Intake(home, store, work, state.datasets, options) as intake:
        intake.read((piece for part in new for piece in part.pieces()), sum(part.size for part in new))
        intake.finish()
        datasets = intake.publish()
    reading, places = intake.reading, intake.reading.places
    whole = [part for part in new if part.known_as in places]  # an interrupted download is read again
    found = {part.known_as: mark for part in whole if (mark := part.mark(places[part.known_as]))}
    marks = {name: mark.with_more() if name in reading.waiting else mark for name, mark in found.items()}
    kept = {name: ref.digest for name, ref in datasets.items() if ref.rows}
    after = state.without(part.known_as for part in new).with_run(marks, kept)
    faults.kill_point("ingest.before_memory")
    if read_tombstones(home).stones != intake.forgotten.stones:  # another machine took this one, which was halted, for dead
        raise BusyError("somebody was forgotten while this command read", log.where, "run it again")
    if after != state:
        save(log, after)
    return Ingested(
        reading=reading,
        refused=Counter(reading.reasons()) + intake.admission.refused,
        counts=intake.totals.counts,
        of_files=intake.totals.of_files,
        redactions=intake.totals.redactions,
        datasets=datasets,
        parts=after.datasets,
        read=[part.file for part in new],
        skipped=[part.file for part in parts if part.new is None],
        log=log.where,
        unused_labels=intake.admission.labels.unused,
    )


def _intact(store: Store, state: IngestState) -> IngestState:
    """Return the state; an empty one if a dataset of it, or its replacement, is gone from the store, so that all is read again."""
    named = [(name, current_digest(store, digest)) for name, digests in state.datasets.items() for digest in digests]
    return state if all(store.has(DatasetRef(name=name, digest=digest, rows=0)) for name, digest in named) else IngestState()
