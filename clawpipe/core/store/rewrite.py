"""Rewrite datasets without some rows, or in fewer files. The remaining rows keep their order and bytes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from clawpipe.core.store.artifacts import Store
from clawpipe.core.store.datasets import dataset_files, publish_dataset, publish_parts
from clawpipe.core.store.parts import PART_ROWS, rechunk
from clawpipe.core.store.refs import DatasetRef
from clawpipe.errors import DataError


def without_rows(store: Store, ref: DatasetRef, rows: Mapping[int, Sequence[int]]) -> DatasetRef:
    """Return the dataset without some rows; unchanged files are linked.

    Args:
        rows: indices of the rows to remove, by file index; both from 0.

    Raises:
        DataError: the dataset is missing or damaged.
    """
    parts = _remaining(dataset_files(store, ref), rows)
    return publish_parts(store, ref.name, parts, schema_version=ref.schema_version, parents=[ref.digest])


def compact(store: Store, refs: Sequence[DatasetRef], rows: int = PART_ROWS) -> DatasetRef:
    """Join several datasets of one name, or one dataset with many small files, to files of `rows` rows.

    Columns that a later minor version of a contract added are null in the rows that lack them. A dataset that lies in no more
    files than it needs is handed back as it is. The old ones stay: see `clawpipe.core.store.replaced.note_replaced` and
    `Store.remove`.

    Raises:
        DataError: a dataset is missing or damaged, or names, versions or columns differ.
    """
    if len({(ref.name, ref.schema_version) for ref in refs}) != 1:
        raise DataError("only datasets of one name and version can be joined", ", ".join(ref.digest[:12] for ref in refs))
    files = [file for ref in refs for file in dataset_files(store, ref)]
    if len(refs) == 1 and len(files) <= max(1, -(-refs[0].rows // rows)):
        return refs[0]
    schema = _common_schema(files, refs[0].name)
    parents = [ref.digest for ref in refs]
    return publish_dataset(
        store, refs[0].name, rechunk(_batches(files, schema), schema, rows), schema_version=refs[0].schema_version, parents=parents
    )


def _remaining(files: Sequence[Path], rows: Mapping[int, Sequence[int]]) -> Iterator[pa.Table | Path]:
    """Yield the files without the rows; empty files are left out, unless all are empty."""
    counts = [pq.read_metadata(file).num_rows - len(rows.get(number, ())) for number, file in enumerate(files)]
    for number, file in enumerate(files):
        if not rows.get(number):
            yield file
        elif counts[number] or (number == 0 and not any(counts)):
            yield _without(file, rows[number])


def _without(file: Path, rows: Sequence[int]) -> pa.Table:
    table = pq.read_table(file)
    keep = np.ones(table.num_rows, dtype=bool)
    keep[np.asarray(rows, dtype=np.int64)] = False
    return table.filter(pa.array(keep))


def _common_schema(files: Sequence[Path], name: str) -> pa.Schema:
    try:
        return pa.unify_schemas([pq.read_schema(file) for file in files])
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise DataError(f"datasets of {name!r} do not fit together: {error}") from None


def _batches(files: Sequence[Path], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    return (_conformed(batch, schema) for file in files for batch in pq.ParquetFile(file).iter_batches())


def _conformed(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return `batch` with the columns of `schema` in its order; missing columns are null."""
    columns = {name: batch.column(name) for name in batch.schema.names}
    filled = [columns[field.name] if field.name in columns else pa.nulls(len(batch), field.type) for field in schema]
    return pa.RecordBatch.from_arrays(filled, schema=schema)
