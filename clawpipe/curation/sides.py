"""Two sides, one pair: the last thing that happens to preference pairs, on a few rows at a time."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from clawpipe.contracts.schema import schema_of
from clawpipe.store.parts import rechunk

# Columns of a side, and what they are called in a pair.
_OWN = {"id": "{}_id", "token_ids": "{}_token_ids", "loss_mask": "{}_loss_mask", "said": "{}"}
_ROWS = 2048


def joined(sides: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
    """Pairs of rows that alternate, the chosen side and its rejected one. What both have in common is that of the chosen one."""
    names = schema_of("preference_pairs").names
    for table in rechunk(sides, sides.schema, _ROWS):
        chosen, rejected = (table.take(np.arange(first, table.num_rows, 2)) for first in (0, 1))
        columns = {name: chosen[name] for name in table.column_names if name not in _OWN}
        for side, rows in (("chosen", chosen), ("rejected", rejected)):
            columns |= {named.format(side): rows[own] for own, named in _OWN.items()}
        yield from pa.table({name: columns[name] for name in names}).to_batches()
