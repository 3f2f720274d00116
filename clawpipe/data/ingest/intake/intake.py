"""One run of ingest: read pieces, here or in parallel processes, and write the new records to datasets."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Self

import pyarrow as pa

from clawpipe.core.store.artifacts import Store
from clawpipe.core.store.home import Home
from clawpipe.core.store.refs import DatasetRef
from clawpipe.data.capture.records import Feedback
from clawpipe.data.capture.settings import session_settings
from clawpipe.data.forgotten.tombstones import read_tombstones
from clawpipe.data.importers.formats.openclaw import JudgeRecord
from clawpipe.data.importers.read.labels import read_labels
from clawpipe.data.importers.read.read import Leave, Reader
from clawpipe.data.importers.read.reading import Reading, Record
from clawpipe.data.importers.sources.lines import Line, Place
from clawpipe.data.ingest.captured.captured import (
    StoredTurn,
    orphan_corrections,
    orphan_feedback_scores,
    stored_turns,
    turns_before,
)
from clawpipe.data.ingest.captured.orphan_judgements import OrphanScores, Turn, orphan_scores, scores_at
from clawpipe.data.ingest.intake.admission import Admission, Known, stored_files
from clawpipe.data.ingest.intake.claims import Admitted, Claims
from clawpipe.data.ingest.intake.dataset_writer import DatasetWriter
from clawpipe.data.ingest.intake.options import Options
from clawpipe.data.ingest.intake.pieces import Piece
from clawpipe.data.ingest.intake.prepare import NAMES, Made, Preparer, check_record
from clawpipe.data.ingest.intake.readers import Readers
from clawpipe.data.ingest.intake.state import is_file
from clawpipe.data.ingest.intake.stored_traces import stored_traces
from clawpipe.data.ingest.intake.wire import Found, Setup
from clawpipe.data.privacy.redact import redactor
from clawpipe.data.privacy.rules import rules_of

_LINE = ("row_id", "row")  # columns that identify a line in quarantine
SHARE = 32 << 20  # bytes that justify a process
_SESSIONS = "sessions"  # the file name of records that span several files


class Intake:
    """Reads pieces into datasets. A context manager.

    Attributes:
        admission: names new records, and counts the others.
        totals: counts of new rows, without columns.
    """

    def __init__(self, home: Home, store: Store, work: Path, stored: Mapping[str, Sequence[str]], options: Options) -> None:
        self._home, self._store, self._stored, self._options = home, store, stored, options
        labels = read_labels([str(options.labels)] if options.labels else [])
        self.forgotten = read_tombstones(home)
        self.admission, self.totals = Admission(store, stored, labels, self.forgotten), Made({})
        idle = session_settings(home.root).idle_seconds
        self._reader = Reader(options.format, check=check_record, mapping=options.mapping, idle=idle)
        self._writers = {name: DatasetWriter(work, name) for name in NAMES}
        self._rejected = Known(store, stored_files(store, stored, "quarantine"), *_LINE)
        self._beside_turns: list[tuple[Record, str, bool]] = []  # records from lines that also hold a turn
        self._spread: dict[tuple[str, bool], list[Line]] = {}  # by file, and whether the file has grown

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self._redact = stack.enter_context(redactor(rules=rules_of(self._home.root)))
            self._preparer = Preparer(self._redact, self._options, self.forgotten, self._options.labels is not None)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._stack.close()

    @property
    def reading(self) -> Reading:
        """The counts of the files read so far."""
        return self._reader.reading

    def read(self, pieces: Iterable[Piece], size: int) -> None:
        """Read pieces of `size` bytes in total, in parallel processes if there are enough bytes."""
        count = min(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1, size // SHARE)
        if count < 2:
            for piece in pieces:
                self._read_here(piece)
            return
        options = replace(self._options, labels=None)
        setup = Setup(os.fsencode(self._home.root), options, self._options.labels is not None, self._redact.search)
        with ThreadPoolExecutor(count) as threads, Readers(count, setup) as readers:
            for piece, found in self._side_by_side(pieces, readers, threads):
                self._take(piece, found)

    def finish(self) -> None:
        """Add records that need all files: those spread over lines, sessions over several files, and orphan judgements."""
        for (name, grown), lines in self._spread.items():
            self._add(self._reader.lines(lines), name, grown)
            self.reading.places[name] = Place()  # later lines may continue these records: the file is read again
        for record, name, grown in self._beside_turns:
            self._add(iter([record]), name, grown)
        captures, rows = self._reader.joining.captures, stored_files(self._store, self._stored, "trajectories")
        stored = stored_turns(self._store, rows, captures.names, everything=captures.has_feedback)
        captures.before = turns_before(stored, captures.turns)
        called = stored_traces(self._store, rows, self._reader.wrapping.traces)
        self._add(self._reader.sessions(stored, called), _SESSIONS, grown=False)
        self.totals.counts["repeated"] += sum(turn.record.id in stored for one in captures.ended() for turn in one.turns)
        orphans = [(one, captures.origin_of(one)) for one in captures.orphan_feedback()]
        self._add(orphan_corrections(self._store, rows, orphans, stored), _SESSIONS, grown=False)
        self.reading.unmatched = self._add_orphans(self._reader.joining.orphans()) + self._add_orphan_feedback(
            captures.orphan_feedback(), stored
        )
        self.totals.counts["repeated"] += self.admission.repeated

    def publish(self) -> dict[str, DatasetRef]:
        """Publish the datasets, and return them by name: `trajectories` always, the others if they have rows."""
        return {
            name: writer.publish(self._store) for name, writer in self._writers.items() if writer.rows or name == "trajectories"
        }

    def _side_by_side(
        self, pieces: Iterable[Piece], readers: Readers, threads: ThreadPoolExecutor
    ) -> Iterator[tuple[Piece, Found]]:
        """Yield each piece with its records, in order. Only this process can read streams, after all earlier pieces."""
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
        leaving: tuple[Leave, ...] = () if piece.whole else ("spread",)
        records = self._reader.file(piece.file, piece.start, piece.known_as, piece.end, leaving)
        self._add(records, piece.known_as, piece.grown)
        self._take(piece, Found(0, 0, {}, {}, [], self._reader.left["spread"]))

    def _add(self, records: Iterator[Record], file: str, grown: bool) -> None:
        for batch in self._preparer.batches(records):
            self._keep(self._preparer.made(batch, self.admission.admit(batch.claims, file, grown)))

    def _admit(self, piece: Piece, claims: Claims) -> Admitted:
        return self.admission.admit(claims, piece.known_as, piece.grown)

    def _keep(self, made: Made) -> None:
        for name, tables in made.tables.items():
            for rows, size in tables:
                self._writers[name].add(self._newly_rejected(rows) if name == "quarantine" else rows, size)
        self.totals.count(made)

    def _newly_rejected(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Remove lines that earlier runs have rejected: the same bytes at the same place of a file."""
        names = zip(*(rows[name].to_pylist() for name in _LINE), strict=True)
        return rows.filter(pa.array(["\n".join(name) not in self._rejected for name in names], pa.bool_()))

    def _take(self, piece: Piece, found: Found) -> None:
        self._beside_turns += [(record, piece.known_as, piece.grown) for record in self._reader.lines(found.turns)]
        self.reading.add(found.reading())
        if not piece.first:
            self.reading.files -= 1
        if found.spread:
            self._spread.setdefault((piece.known_as, piece.grown), []).extend(found.spread)

    def _add_orphans(self, judged: Mapping[Turn, Sequence[JudgeRecord]]) -> int:
        """Add judge records of turns that earlier runs have stored. Returns the number of records whose turn is unknown."""
        records = [record for of_turn in judged.values() for record in of_turn]
        clean = iter(self._preparer.cleaned([record.judgement for record in records]))
        kept = {turn: [replace(record, judgement=next(clean)) for record in of_turn] for turn, of_turn in judged.items()}
        rows, scores = (stored_files(self._store, self._stored, name) for name in ("trajectories", "scores"))
        return self._add_scores(orphan_scores(self._store, rows, scores, kept))

    def _add_orphan_feedback(self, feedback: Sequence[Feedback], stored: Mapping[str, StoredTurn]) -> int:
        """Add feedback on captured turns that earlier runs have stored. Returns the number of entries whose turn is unknown."""
        judged, places = orphan_feedback_scores(feedback, stored)
        files = stored_files(self._store, self._stored, "scores")
        return self._add_scores(scores_at(self._store, files, places, judged)) if judged else 0

    def _add_scores(self, orphans: OrphanScores) -> int:
        made = Made()
        made.add("scores", orphans.rows)
        self._keep(made)
        self.totals.counts["repeated"] += orphans.repeated
        return orphans.unmatched


def _result(piece: Piece, found: Future[Found]) -> tuple[Piece, Found]:
    return piece, found.result()
