"""Wide rows in order, through files: some 50 MB at a time.

DuckDB's own sort of such rows ran out of memory although it spilled (version 2.0, 1.6 million rows in 400 MB).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pyarrow as pa

from clawpipe import faults

PLACE = "place"
_HELD = 16 << 20  # bytes on their way to the files
_TOKENS = 4 << 20  # a file, about: some 50 MB with masks, log-probs and text
_FILES = 256  # that are open at once


def in_order(rows: pa.RecordBatchReader, count: int, tokens: int, directory: Path) -> pa.RecordBatchReader:
    """Rows in the order of their column PLACE, which they lose.

    Args:
        rows: PLACE holds the numbers from 0 to `count` - 1, each once.
        tokens: of all rows, about. Memory is that of their share in one file: some 50 MB up to a billion tokens, if the long rows
            are not all in one place.
        directory: an empty one.
    """
    files = min(max(tokens // _TOKENS, 1), _FILES)
    schema = rows.schema.remove(rows.schema.get_field_index(PLACE))
    return pa.RecordBatchReader.from_batches(schema, _through_files(rows, max(-(-count // files), 1), directory))


def _through_files(rows: pa.RecordBatchReader, places: int, directory: Path) -> Iterator[pa.RecordBatch]:
    paths = _spread(rows, places, directory)
    faults.point("ordering.before_read")
    for path in paths:
        yield from _sorted(path).drop_columns(PLACE).to_batches()
        path.unlink()


def _spread(rows: pa.RecordBatchReader, places: int, directory: Path) -> list[Path]:
    """Files in order, of which each holds `places` places in a row."""
    files: dict[int, pa.ipc.RecordBatchFileWriter] = {}
    paths: dict[int, Path] = {}
    with ExitStack() as stack:
        for table in _tables(rows, rows.schema):
            for number, part in _parts(table, places):
                if number not in files:
                    paths[number] = directory / f"{number}.arrow"
                    sink = stack.enter_context(pa.OSFile(str(paths[number]), "wb"))
                    files[number] = stack.enter_context(pa.ipc.new_file(sink, rows.schema))
                files[number].write_table(part)
    return [paths[number] for number in sorted(paths)]


def _tables(rows: Iterable[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.Table]:
    """Rows in tables of some _HELD bytes."""
    held, size = list[pa.RecordBatch](), 0
    for batch in rows:
        held.append(batch)
        size += batch.nbytes
        if size >= _HELD:
            yield pa.Table.from_batches(held)
            held, size = [], 0
    yield pa.Table.from_batches(held, schema)


def _parts(table: pa.Table, places: int) -> Iterator[tuple[int, pa.Table]]:
    """Rows by the number of their file."""
    numbers = table[PLACE].to_numpy() // places
    together = table.take(np.argsort(numbers, kind="stable"))
    found, counts = np.unique(numbers, return_counts=True)
    for number, start, count in zip(found.tolist(), np.cumsum(counts) - counts, counts, strict=True):
        yield number, together.slice(start, count)


def _sorted(path: Path) -> pa.Table:
    with pa.memory_map(str(path)) as file:
        return pa.ipc.open_file(file).read_all().sort_by(PLACE)
