"""One run of ingest: pieces are read, here or by processes side by side, and what is new of them goes into the spools."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import Self

import pyarrow as pa

from clawpipe.importers.labels import read_labels
from clawpipe.importers.openclaw import JudgeRecord
from clawpipe.importers.read import Reader, Reading, Record
from clawpipe.importers.sources.lines import Line, Place
from clawpipe.ingest.admission import Admission, Known, stored_files
from clawpipe.ingest.claims import Admitted, Claims
from clawpipe.ingest.dataset_writer import Spool
from clawpipe.ingest.memory import is_file
from clawpipe.ingest.options import Options
from clawpipe.ingest.orphan_judgements import Turn, late_scores
from clawpipe.ingest.pieces import Piece
from clawpipe.ingest.prepare import NAMES, Made, Preparer, check_record
from clawpipe.ingest.readers import Readers
from clawpipe.ingest.wire import Found, Setup
from clawpipe.lineage.tombstones import read_tombstones
from clawpipe.privacy.redact import redactor
from clawpipe.privacy.rules import rules_of
from clawpipe.store.artifacts import Store
from clawpipe.store.home import Home
from clawpipe.store.refs import DatasetRef

_LINE = ("row_id", "row")  # what a line is known by in quarantine
SHARE = 32 << 20  # bytes that are worth a process


@dataclass
class _Left:
    """Lines of a file that are read once all else is."""

    start: Place
    grown: bool
    lines: list[Line] = field(default_factory=list)


class Intake:
    """Takes pieces and gives datasets. A context manager.

    Attributes:
        admission: what was new, and how much was not.
        totals: what was counted of new rows; it holds no columns.
    """

    def __init__(self, home: Home, store: Store, work: Path, stored: Mapping[str, Sequence[str]], options: Options) -> None:
        self._home, self._store, self._stored, self._options = home, store, stored, options
        labels = read_labels([str(options.labels)] if options.labels else [])
        self.admission, self.totals = Admission(store, stored, labels, read_tombstones(home)), Made({})
        self._reader = Reader(options.format, check=check_record, mapping=options.mapping)
        self._spools = {name: Spool(work, name) for name in NAMES}
        self._set_aside = Known(store, stored_files(store, stored, "quarantine"), *_LINE)
        self._left: dict[str, _Left] = {}

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            redact = stack.enter_context(redactor(rules=rules_of(self._home.root)))
            self._preparer = Preparer(redact, self._options, read_tombstones(self._home), self._options.labels is not None)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._stack.close()

    @property
    def reading(self) -> Reading:
        """What was read so far."""
        return self._reader.reading

    def read(self, pieces: Iterable[Piece], size: int) -> None:
        """Read pieces of so many bytes, by as many processes as that is worth."""
        count = min(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1, size // SHARE)
        if count < 2:
            for piece in pieces:
                self._read_here(piece)
            return
        setup = Setup(str(self._home.root), replace(self._options, labels=None), self._options.labels is not None)
        with ThreadPoolExecutor(count) as threads, Readers(count, setup) as readers:
            for piece, found in self._side_by_side(pieces, readers, threads):
                self._take(piece, found)

    def finish(self) -> None:
        """What only shows when all is read: records spread over lines, sessions over files, judgements that came late."""
        for name, left in self._left.items():
            self.admission.next_file()
            before = self.reading.places[name]
            self._add(self._reader.lines(left.lines), left.grown)
            ends = (before, self.reading.places[name])
            self.reading.places[name] = left.start if self._reader.has_spread else max(ends, key=lambda place: place.offset)
        self.admission.next_file()
        self._add(self._reader.sessions(), grown=False)
        self.reading.unmatched = self._add_late(self._reader.orphans())
        self.totals.counts["repeated"] += self.admission.repeated

    def publish(self) -> dict[str, DatasetRef]:
        """The datasets by name: `trajectories` always, the others where they have a row."""
        return {name: spool.publish(self._store) for name, spool in self._spools.items() if spool.rows or name == "trajectories"}

    def _side_by_side(
        self, pieces: Iterable[Piece], readers: Readers, threads: ThreadPoolExecutor
    ) -> Iterator[tuple[Piece, Found]]:
        """Each piece with what was found in it, in order. Only this process can read streams: they wait for what is before them."""
        waiting: deque[tuple[Piece, Future[Found]]] = deque()
        number = 0
        for piece in pieces:
            while waiting and (len(waiting) > 2 * readers.count or not is_file(piece.file)):
                yield _result(*waiting.popleft())
            if is_file(piece.file):
                waiting.append((piece, threads.submit(readers.read, number, piece, self._admit, self._keep)))
                number += 1
            else:
                self._read_here(piece)
        while waiting:
            yield _result(*waiting.popleft())

    def _read_here(self, piece: Piece) -> None:
        self._reader.left = []
        if piece.first:
            self.admission.next_file()
        records = self._reader.file(piece.file, piece.start, piece.known_as, piece.end, () if piece.whole else ("spread",))
        self._add(records, piece.grown)
        self._take(piece, Found(0, 0, ({}, {}, {}, {}), {}, self._reader.left))

    def _add(self, records: Iterator[Record], grown: bool) -> None:
        for batch in self._preparer.batches(records):
            self._keep(self._preparer.made(batch, self.admission.admit(batch.claims, grown)))

    def _admit(self, piece: Piece, claims: Claims, begins: bool) -> Admitted:
        if begins and piece.first:
            self.admission.next_file()
        return self.admission.admit(claims, piece.grown)

    def _keep(self, made: Made) -> None:
        for name, tables in made.tables.items():
            for rows, size in tables:
                self._spools[name].add(self._not_set_aside(rows) if name == "quarantine" else rows, size)
        self.totals.count(made)

    def _not_set_aside(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Without the lines that earlier runs have set aside: the same bytes at the same place of a file."""
        names = zip(*(rows[name].to_pylist() for name in _LINE), strict=True)
        return rows.filter(pa.array(["\n".join(name) not in self._set_aside for name in names], pa.bool_()))

    def _take(self, piece: Piece, found: Found) -> None:
        self.reading.add(found.reading())
        if not piece.first:
            self.reading.files -= 1
        if found.left:
            self._left.setdefault(piece.known_as, _Left(piece.start, piece.grown)).lines += found.left

    def _add_late(self, judged: Mapping[Turn, Sequence[JudgeRecord]]) -> int:
        """Judge records of turns that earlier runs have stored. Returns of how many records nobody recorded the turn."""
        records = [record for of_turn in judged.values() for record in of_turn]
        clean = iter(self._preparer.cleaned([record.judgement for record in records]))
        kept = {turn: [replace(record, judgement=next(clean)) for record in of_turn] for turn, of_turn in judged.items()}
        rows, scores = (stored_files(self._store, self._stored, name) for name in ("trajectories", "scores"))
        late = late_scores(self._store, rows, scores, kept)
        made = Made()
        made.add("scores", late.rows)
        self._keep(made)
        self.totals.counts["repeated"] += late.repeated
        return late.unmatched


def _result(piece: Piece, found: Future[Found]) -> tuple[Piece, Found]:
    return piece, found.result()
