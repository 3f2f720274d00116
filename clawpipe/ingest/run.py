"""Ingest: from files to datasets, once each."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from clawpipe import faults
from clawpipe.importers.labels import read_labels
from clawpipe.importers.read import Reader, Reading, Record
from clawpipe.importers.source import find_files
from clawpipe.ingest.batches import Batches
from clawpipe.ingest.checks import check_record
from clawpipe.ingest.memory import Mark, Memory, absolute, load, mark_of, memory_path, save, stat_of, unread
from clawpipe.ingest.options import Options
from clawpipe.lineage.tombstones import read_tombstones
from clawpipe.privacy.rules import rules_of
from clawpipe.store.artifacts import Store
from clawpipe.store.home import Home
from clawpipe.store.locks import exclusive
from clawpipe.store.open import open_store
from clawpipe.store.refs import DatasetRef
from clawpipe.store.replaced import current_digest


@dataclass
class Ingested:
    """What one run has read and made.

    Attributes:
        of_files: counts of each file with new conversations.
        datasets: of this run, by name; `trajectories` always, the others where there is a row.
        parts: digests of all runs so far with these options, this one's among them, by name.
        skipped: files of which nothing was new.
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
    log: Path
    unused_labels: int

    @property
    def accepted(self) -> int:
        return self.reading.lines - self.refused.total()


def ingest(
    home: Home, paths: Sequence[str], options: Options, *, again: bool = False, waits: Callable[[str], None] | None = None
) -> Ingested:
    """Read what is new in files, folders, patterns or standard input, and store it. Of two at once the second waits.

    Args:
        again: read from the start what was read before. What is stored stays as it is; what was set aside has another chance.
        waits: told that it waits, and for whom, where it does.

    Raises:
        NotFoundError: a path that matches nothing.
        ConfigError: no such format, no such file of labels, or the home's `privacy.yaml` is wrong.
        DataError: the log of earlier runs, a file of labels, or the list of what was forgotten is damaged.
        BusyError: the shared store does not answer.
    """
    path = memory_path(home, options.name)
    with exclusive(home.locks / "ingest.lock", f"ingest into the home {home.root}", wait=True, waits=waits):
        store, files = open_store(home), find_files(paths)
        memory = _intact(store, load(path))
        if again:
            memory = memory.without(absolute(files))
        work = path.with_suffix(".work")  # not in home.work, which a night that ends removes
        shutil.rmtree(work, ignore_errors=True)  # what a killed run left
        try:
            return _ingest(home, store, work, files, options, memory, path)
        finally:
            shutil.rmtree(work, ignore_errors=True)


def _ingest(home: Home, store: Store, work: Path, files: Sequence[str], options: Options, memory: Memory, path: Path) -> Ingested:
    reader, marks, read = Reader(options.format, check=check_record, mapping=options.mapping), dict[str, Mark](), list[str]()
    labels = read_labels([str(options.labels)] if options.labels else [])
    with Batches(store, work, memory.datasets, options, labels, read_tombstones(home), rules_of(home.root)) as batches:
        for known_as, file in absolute(files).items():
            part = unread(file, memory.files.get(known_as))
            if part is not None:
                before = stat_of(file)
                batches.next_file(grown=part.grown)
                _keep(batches, reader.file(file, part.start, known_as))  # a path that still leads there from anywhere else
                read.append(file)
                if before is not None:
                    marks[known_as] = mark_of(file, before, reader.reading.places[known_as])
        batches.next_file(grown=False)
        _keep(batches, reader.sessions())
        reader.reading.unmatched = batches.add_late(reader.orphans())
        datasets = batches.publish()
    kept = {name: ref.digest for name, ref in datasets.items() if ref.rows}
    after = memory.with_run(marks, kept)
    faults.point("ingest.before_memory")
    if after != memory:
        save(path, after)
    return Ingested(
        reading=reader.reading,
        refused=Counter(reader.reading.reasons()) + batches.refused,
        counts=batches.counts,
        of_files=batches.of_files,
        redactions=batches.redactions,
        datasets=datasets,
        parts=after.datasets,
        read=read,
        skipped=[file for file in absolute(files).values() if file not in read],
        log=path,
        unused_labels=labels.unused,
    )


def _keep(batches: Batches, records: Iterator[Record]) -> None:
    for record in records:
        batches.add(record)
    batches.flush()


def _intact(store: Store, memory: Memory) -> Memory:
    """The memory, unless a dataset of it, or what took its place, is gone from the store: then everything is read again."""
    named = [(name, current_digest(store, digest)) for name, digests in memory.datasets.items() for digest in digests]
    return memory if all(store.has(DatasetRef(name=name, digest=digest, rows=0)) for name, digest in named) else Memory()
