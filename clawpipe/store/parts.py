"""Cut a stream of rows into parts of one size, so that a dataset's files do not depend on how its rows arrived."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

PART_ROWS = 8192


def rechunk(batches: Iterable[pa.RecordBatch], schema: pa.Schema, rows: int = PART_ROWS) -> Iterator[pa.Table]:
    """Tables of `rows` rows and a shorter last one; one empty table if there are no rows. Columns are cast to `schema`."""
    held, empty = schema.empty_table(), True
    for batch in batches:
        held = pa.concat_tables([held, pa.Table.from_batches([batch]).cast(schema)])
        while held.num_rows >= rows:
            yield held.slice(0, rows)
            held, empty = held.slice(rows), False
    if held.num_rows or empty:
        yield held
