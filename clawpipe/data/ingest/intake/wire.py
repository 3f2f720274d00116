"""Messages between the ingest process and its reading processes: msgpack, each after its length."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import IO, TypeVar

import msgspec
import pyarrow as pa

from clawpipe.data.importers.read.read import Reader
from clawpipe.data.importers.read.reading import COUNTERS, Reading
from clawpipe.data.importers.sources.lines import Line, Place
from clawpipe.data.ingest.intake.options import Options
from clawpipe.data.ingest.intake.prepare import Made
from clawpipe.data.privacy.suspects import Search

_LENGTH = 8  # bytes of the length of a message
_encode = msgspec.msgpack.encode
T = TypeVar("T")


class Setup(msgspec.Struct):
    """The settings of a reading process.

    Attributes:
        labelled: whether claims need the prompt.
        secrets: the search for secrets, which the main process has compiled.
    """

    home: bytes
    options: Options
    labelled: bool
    secrets: Search | None = None


class Columns(msgspec.Struct, tag=True):
    """`Made` in the form for the pipe: Arrow batches by dataset."""

    tables: dict[str, list[tuple[bytes, int]]]
    counts: dict[str, int]
    of_files: dict[str, dict[str, int]]
    redactions: dict[str, int]

    def made(self, schemas: dict[str, pa.Schema]) -> Made:
        tables = {name: [(_batch(data, schemas[name]), size) for data, size in kept] for name, kept in self.tables.items()}
        of_files = {file: Counter(counts) for file, counts in self.of_files.items()}
        return Made(tables, Counter(self.counts), defaultdict(Counter, of_files), Counter(self.redactions))


class Found(msgspec.Struct, tag=True):
    """The result of a piece besides rows: `Reading` in the form for the pipe, and the lines that were left.

    `counts` holds the counters of the reading by name; `turns` are lines of sessions, `spread` parts of records over several lines,
    `traces` the traces of which calls were read.
    """

    files: int
    lines: int
    counts: dict[str, dict[str, int]]
    places: dict[str, Place]
    turns: list[Line]
    spread: list[Line]
    traces: list[str] = []

    @classmethod
    def of(cls, reader: Reader) -> Found:
        reading = reader.reading
        counts = {name: dict(getattr(reading, name)) for name in COUNTERS}
        left = reader.left["sessions"], reader.left["spread"]
        return cls(reading.files, reading.lines, counts, reading.places, *left, sorted(reading.traces))

    def reading(self) -> Reading:
        made = Reading(self.files, self.lines, places=self.places, traces=set(self.traces))
        for name, found in self.counts.items():
            getattr(made, name).update(found)
        return made


class Failed(msgspec.Struct, tag=True):
    """The process has failed: `error` is a user's error from `ClawpipeError.as_dict`, else `trace` is a traceback."""

    trace: str
    error: dict[str, str | int] | None = None


def columns_of(made: Made) -> Columns:
    tables = {name: [(rows.serialize().to_pybytes(), size) for rows, size in kept] for name, kept in made.tables.items()}
    return Columns(tables, dict(made.counts), {file: dict(counts) for file, counts in made.of_files.items()}, dict(made.redactions))


def _batch(data: bytes, schema: pa.Schema) -> pa.RecordBatch:
    return pa.ipc.read_record_batch(pa.py_buffer(data), schema)


def send(pipe: IO[bytes], message: msgspec.Struct) -> None:
    data = _encode(message)
    pipe.write(len(data).to_bytes(_LENGTH))
    pipe.write(data)
    pipe.flush()


def receive(pipe: IO[bytes], kind: type[T]) -> T | None:
    """Read the next message; None if the other side has ended, also in the middle of a message."""
    length = int.from_bytes(head) if len(head := pipe.read(_LENGTH)) == _LENGTH else None
    data = pipe.read(length) if length is not None else b""
    return msgspec.msgpack.decode(data, type=kind) if length is not None and len(data) == length else None
