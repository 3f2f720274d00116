"""Task items by id, kept in columns: a dictionary of a million items as Python objects would take gigabytes."""

from __future__ import annotations

from clawpipe.core.basics.json_types import Row
from clawpipe.core.store.artifacts import Store
from clawpipe.core.store.datasets import read_dataset
from clawpipe.core.store.refs import DatasetRef


class ItemRows:
    """The rows of `task_items`; of an id that is there twice, the last row counts. The row that was asked for last is kept, since
    the rollouts of an item follow one another.

    Raises:
        DataError: the dataset is missing or damaged.
    """

    def __init__(self, store: Store, items: DatasetRef) -> None:
        self._table = read_dataset(store, items).combine_chunks()
        self._places = {name: place for place, name in enumerate(self._table["item_id"].to_pylist())}
        self._last: Row | None = None

    def get(self, item_id: str) -> Row | None:
        if self._last is None or self._last["item_id"] != item_id:
            if (place := self._places.get(item_id)) is None:
                return None
            [self._last] = self._table.slice(place, 1).to_pylist()
        return self._last
