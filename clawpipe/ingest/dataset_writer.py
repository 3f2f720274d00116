"""Rows on their way to a dataset: written part by part, so that memory holds one part of each dataset at most.

Where a part ends depends on the rows alone, so equal rows make equal files, hence a dataset of the same name.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

from clawpipe.contracts.odcs import newest_version
from clawpipe.contracts.schema import schema_of
from clawpipe.store.artifacts import Store
from clawpipe.store.datasets import publish_files, write_parquet
from clawpipe.store.parts import PART_ROWS
from clawpipe.store.refs import DatasetRef

PART_BYTES = 64 << 20


class DatasetWriter:
    """Rows of one dataset, below a directory of its own."""

    def __init__(self, directory: Path, name: str) -> None:
        self.name, self.rows = name, 0
        self._directory, self._schema = directory / name, schema_of(name)
        self._held, self._held_rows, self._held_bytes = list[pa.RecordBatch](), 0, 0
        self._files: list[Path] = []

    def add(self, rows: pa.RecordBatch, size: int) -> None:
        """Rows in the contract's columns, and their size in bytes where they were made: copies of them may differ in it."""
        if not rows.num_rows:
            return
        self._held.append(rows)
        self.rows += rows.num_rows
        self._held_rows, self._held_bytes = self._held_rows + rows.num_rows, self._held_bytes + size
        while self._held_rows >= PART_ROWS or self._held_bytes >= PART_BYTES:
            self._write(PART_ROWS)

    def publish(self, store: Store, parents: Sequence[str] = ()) -> DatasetRef:
        """The dataset of all rows; an empty one if there are none."""
        if self._held or not self._files:
            self._write(PART_ROWS)
        return publish_files(store, self.name, self._files, schema_version=newest_version(self.name), parents=parents)

    def _write(self, rows: int) -> None:
        table = pa.Table.from_batches(self._held, self._schema)
        self._directory.mkdir(parents=True, exist_ok=True)
        self._files.append(self._directory / f"part-{len(self._files):05d}.parquet")
        write_parquet(table.slice(0, rows), self._files[-1])
        self._held = table.slice(rows).to_batches()
        left = table.num_rows - min(rows, table.num_rows)
        self._held_rows, self._held_bytes = left, self._held_bytes * left // max(table.num_rows, 1)
