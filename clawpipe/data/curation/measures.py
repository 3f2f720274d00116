"""Measure the trajectories of each dataset once, and keep the measures beside it; they are never part of a result.

A night over old datasets and a new one reads the tokens and messages of the new one only. The measures are a dataset of the store,
so that forgotten rows are removed from them, too; notes map trajectories, settings and code to their measures. Both may be lost at
any time, and are made again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from clawpipe.core.contracts.schema import schema_of
from clawpipe.core.store.artifacts import Store
from clawpipe.core.store.datasets import dataset_files, publish_dataset
from clawpipe.core.store.duck import have_different_columns, session
from clawpipe.core.store.keys import part_key, step_key
from clawpipe.core.store.notes import Note, Notes
from clawpipe.core.store.parts import rechunk
from clawpipe.core.store.refs import DatasetRef
from clawpipe.core.store.source import code_digest
from clawpipe.core.store.spread import in_parts
from clawpipe.core.system import faults
from clawpipe.data.curation.statements import create_macros, read_sql

PLACE = "place"
_BUFFER = 16 << 20  # bytes of rows in memory
_TOKENS = 4 << 20  # tokens in a file, about: some 50 MB with masks, log-probs and text
_FILES = 256  # open at once
NAME = "measures"
_ROWS = 65536  # a file: its rows are narrow
_UINT = pa.uint64()
_ACT = pa.struct([("reply_digest", _UINT), ("act", _UINT), ("prefix", _UINT)])
SCHEMA = pa.schema(
    [("file", pa.int32()), ("row", pa.int64())]  # of the trajectory in its dataset, both from 0
    + [
        schema_of("trajectories").field(name)
        for name in ("trajectory_id", "item_id", "group_id", "rollout_index", "policy_version", "split", "tokens", "temperature")
    ]
    + [("demonstration", pa.bool_())]
    + [schema_of("trajectories").field(name) for name in ("turns", "environment", "source", "session_id", "user_id")]
    + [("episode", pa.string()), ("numbers", pa.list_(pa.int32()))]
    + [("ending", pa.string()), ("length", pa.int64()), ("trained", pa.int64()), ("main_turns", pa.int32()), ("finite", pa.bool_())]
    + [("logprobs_fault", pa.string())]
    + [("body", _UINT), ("questions", pa.list_(_UINT)), ("dialogues", pa.list_(_UINT)), ("runs", pa.list_(_UINT))]
    + [("in_script", pa.float64()), ("repetition", pa.float64()), ("tool_error_rate", pa.float64()), ("canary", pa.bool_())]
    + [("answered", pa.list_(pa.bool_())), ("prompt", _UINT), ("reply_digest", _UINT), ("acts", pa.list_(_ACT))]
)


def in_order(rows: pa.RecordBatchReader, count: int, tokens: int, directory: Path) -> pa.RecordBatchReader:
    """Sort rows by their column PLACE, and drop the column.

    Args:
        rows: PLACE holds the numbers from 0 to `count` - 1, each once.
        tokens: approximate number of tokens of all rows. Memory is that of one file's share: some 50 MB up to a billion tokens, if
            long rows are spread evenly.
        directory: an empty one.
    """
    files = min(max(tokens // _TOKENS, 1), _FILES)
    schema = rows.schema.remove(rows.schema.get_field_index(PLACE))
    return pa.RecordBatchReader.from_batches(schema, _through_files(rows, max(-(-count // files), 1), directory))


def _through_files(rows: pa.RecordBatchReader, places: int, directory: Path) -> Iterator[pa.RecordBatch]:
    paths = _spread(rows, places, directory)
    faults.kill_point("ordering.before_read")
    for path in paths:
        yield from _sorted(path).drop_columns(PLACE).to_batches()
        path.unlink()


def _spread(rows: pa.RecordBatchReader, places: int, directory: Path) -> list[Path]:
    """Write the rows to files in order, with `places` consecutive places in each."""
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
    """Yield the rows in tables of about _BUFFER bytes."""
    batches, size = list[pa.RecordBatch](), 0
    for batch in rows:
        batches.append(batch)
        size += batch.nbytes
        if size >= _BUFFER:
            yield pa.Table.from_batches(batches)
            batches, size = [], 0
    yield pa.Table.from_batches(batches, schema)


def _parts(table: pa.Table, places: int) -> Iterator[tuple[int, pa.Table]]:
    """Yield the rows by the index of their file."""
    numbers = table[PLACE].to_numpy() // places
    together = table.take(np.argsort(numbers, kind="stable"))
    found, counts = np.unique(numbers, return_counts=True)
    for number, start, count in zip(found.tolist(), np.cumsum(counts) - counts, counts, strict=True):
        yield number, together.slice(start, count)


def _sorted(path: Path) -> pa.Table:
    with pa.memory_map(str(path)) as file:
        return pa.ipc.open_file(file).read_all().sort_by(PLACE)


def measured(
    store: Store,
    trajectories: Sequence[DatasetRef],
    wants: Mapping[str, Any],
    threads: int | None = None,
    memory: str | None = None,
) -> list[DatasetRef]:
    """Return the measures of each dataset, in layout SCHEMA and in its order; kept ones of an earlier night are reused.

    Args:
        wants: see clawpipe.data.curation.runner.wants.

    Raises:
        DataError: a dataset is missing or damaged.
    """
    notes, key = Notes(store, NAME), step_key(NAME, {"wants": dict(wants)}, code_digest(__name__))
    keys = [part_key(key, ref) for ref in trajectories]
    found = {name: note.dataset for name in keys if (note := notes.recall(name))}
    new = {name: ref for name, ref in zip(keys, trajectories, strict=True) if name not in found}
    calls = [{"trajectories": ref, "wants": dict(wants), "threads": threads, "memory": memory} for ref in new.values()]
    for name, made in zip(new, in_parts(store, measure, calls), strict=True):
        faults.kill_point("measures.before_note")
        notes.keep(name, Note(dataset=made))
        faults.kill_point("measures.before_use")
        found[name] = made
    return [found[name] for name in keys]


def measure(
    store: Store, trajectories: DatasetRef, wants: Mapping[str, Any], threads: int | None, memory: str | None
) -> DatasetRef:
    """Measure one dataset; the arguments are those of `measured`."""
    files = [str(file) for file in dataset_files(store, trajectories)]

    def batches() -> Iterator[pa.RecordBatch]:
        with session(store, files, threads, memory) as duck:
            create_macros(duck)
            yield from duck.sql(
                read_sql("measures"), params={"trajectories": files, "mixed_trajectories": have_different_columns(files), **wants}
            ).to_arrow_reader(_ROWS)

    return publish_dataset(store, NAME, rechunk(batches(), SCHEMA, _ROWS), parents=[trajectories.digest])
