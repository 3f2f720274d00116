"""Cut a stream of rows into parts of equal size, so that a dataset's files do not depend on the batches of its rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

PART_ROWS = 8192


def rechunk(batches: Iterable[pa.RecordBatch], schema: pa.Schema, rows: int = PART_ROWS) -> Iterator[pa.Table]:
    """Yield tables of `rows` rows and a shorter last one; one empty table if there are no rows. Columns are cast to `schema`."""
    pending, empty = schema.empty_table(), True
    for batch in batches:
        pending = pa.concat_tables([pending, pa.Table.from_batches([batch]).cast(schema)])
        while pending.num_rows >= rows:
            yield pending.slice(0, rows)
            pending, empty = pending.slice(rows), False
    if pending.num_rows or empty:
        yield pending
