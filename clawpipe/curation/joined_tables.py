"""Tables about trajectories that other steps have made and that SQL steps of curation may read.

Each is narrow and keyed by `trajectory_id`. A step finds one under its name as it finds `previous`; where a caller gives none it is
there all the same, without rows, so that a step reads the same on every night.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import duckdb
import pyarrow as pa

from clawpipe.errors import DataError
from clawpipe.store.artifacts import Store
from clawpipe.store.datasets import read_dataset
from clawpipe.store.refs import DatasetRef

LAYOUTS: Mapping[str, pa.Schema] = {
    # held-out items that a trajectory is near to, one of each trajectory; how: "n-gram" or "near-duplicate"
    "near_heldout": pa.schema([("trajectory_id", pa.string()), ("item_id", pa.string()), ("how", pa.string())]),
    # trajectories that say nearly the same as an earlier one; within: that one is of the same batch, not of an earlier night
    "near_duplicate": pa.schema(
        [
            ("trajectory_id", pa.string()),
            ("repeats", pa.string()),
            ("same_item", pa.bool_()),
            ("within", pa.bool_()),
            ("similarity", pa.float64()),
        ]
    ),
}


def stored_tables(store: Store, datasets: Sequence[DatasetRef]) -> dict[str, pa.Table]:
    """Facts that were stored under the names of LAYOUTS; several datasets of a name are one table.

    Raises:
        DataError: missing or damaged.
    """
    names = sorted({ref.name for ref in datasets})
    return {name: pa.concat_tables([read_dataset(store, ref) for ref in datasets if ref.name == name]) for name in names}


def register(duck: duckdb.DuckDBPyConnection, tables: Mapping[str, pa.Table]) -> None:
    """Every table of LAYOUTS, filled from `tables`.

    Raises:
        DataError: a table that no step knows, or one of another layout.
    """
    if unknown := sorted(set(tables) - set(LAYOUTS)):
        raise DataError(f"no step of curation reads {unknown[0]!r}", fix=f"one of {', '.join(LAYOUTS)}")
    for name, schema in LAYOUTS.items():
        table = tables.get(name, schema.empty_table())
        if not table.schema.equals(schema):
            raise DataError(f"its columns are {table.schema.names}, not {schema.names}", f"tables {name!r}")
        duck.register(name, table)
