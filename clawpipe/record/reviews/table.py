"""The table by which curation knows people's decisions."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from clawpipe.core.basics.json_types import Row
from clawpipe.core.store.artifacts import Store
from clawpipe.core.store.datasets import publish_dataset
from clawpipe.core.store.refs import DatasetRef
from clawpipe.data.curation.joined_tables import LAYOUTS

NAME = "reviews"
SCHEMA = LAYOUTS[NAME]


def published(store: Store, rows: Iterable[Row], parents: Iterable[str] = ()) -> DatasetRef:
    """Publish rows of the layout, in the order of their ids."""
    ordered = sorted(rows, key=lambda row: row["row_id"])
    return publish_dataset(store, NAME, [pa.Table.from_pylist(ordered, schema=SCHEMA)], parents=parents)
