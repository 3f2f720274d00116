"""Tables about trajectories from other steps, which SQL steps of curation may join.

Each is narrow and keyed by the id of a row. SQL steps find it under its name, like `previous`; a table that a caller does not give
is empty, so that the statements are the same on every night.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import duckdb
import pyarrow as pa

from clawpipe.core.store.artifacts import Store
from clawpipe.core.store.datasets import read_dataset
from clawpipe.core.store.refs import DatasetRef
from clawpipe.errors import DataError

LAYOUTS: Mapping[str, pa.Schema] = {
    # a held-out item that a trajectory is near to, one for each trajectory; how: "n-gram" or "near-duplicate"
    "near_heldout": pa.schema([("trajectory_id", pa.string()), ("item_id", pa.string()), ("how", pa.string())]),
    # near-duplicates of earlier trajectories; within: the earlier one is in the same batch, not of an earlier night
    "near_duplicate": pa.schema(
        [
            ("trajectory_id", pa.string()),
            ("repeats", pa.string()),
            ("same_item", pa.bool_()),
            ("within", pa.bool_()),
            ("similarity", pa.float64()),
        ]
    ),
    # what people decided about rows: approved, rejected, edited, or "written" of a row that holds an edited answer; `row_id` is
    # that of a trajectory or of a pair, `turn` and `text` are of an edit
    "reviews": pa.schema(
        [
            ("row_id", pa.string()),
            ("verdict", pa.string()),
            ("by", pa.string()),
            ("at", pa.string()),
            ("reason", pa.string()),
            ("turn", pa.int32()),
            ("text", pa.string()),
        ]
    ),
}


def stored_tables(store: Store, datasets: Sequence[DatasetRef]) -> dict[str, pa.Table]:
    """Read datasets with the names of LAYOUTS; several datasets with one name become one table.

    Raises:
        DataError: a dataset is missing or damaged.
    """
    names = sorted({ref.name for ref in datasets})
    return {name: pa.concat_tables([read_dataset(store, ref) for ref in datasets if ref.name == name]) for name in names}


def register(duck: duckdb.DuckDBPyConnection, tables: Mapping[str, pa.Table]) -> None:
    """Register every table of LAYOUTS, filled from `tables`.

    Raises:
        DataError: a table has an unknown name, or another layout.
    """
    if unknown := sorted(set(tables) - set(LAYOUTS)):
        raise DataError(f"no step of curation reads {unknown[0]!r}", fix=f"one of {', '.join(LAYOUTS)}")
    for name, schema in LAYOUTS.items():
        table = tables.get(name, schema.empty_table())
        if not table.schema.equals(schema):
            raise DataError(f"its columns are {table.schema.names}, not {schema.names}", f"tables {name!r}")
        duck.register(name, table)
