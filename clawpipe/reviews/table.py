"""The table by which curation knows people's decisions."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from clawpipe.curation.joined_tables import LAYOUTS
from clawpipe.json_types import Row
from clawpipe.store.artifacts import Store
from clawpipe.store.datasets import publish_dataset
from clawpipe.store.refs import DatasetRef

NAME = "reviews"
SCHEMA = LAYOUTS[NAME]


def published(store: Store, rows: Iterable[Row], parents: Iterable[str] = ()) -> DatasetRef:
    """Publish rows of the layout, in the order of their ids."""
    ordered = sorted(rows, key=lambda row: row["row_id"])
    return publish_dataset(store, NAME, [pa.Table.from_pylist(ordered, schema=SCHEMA)], parents=parents)
