"""Rows on their way to a dataset: written part by part, so that memory holds one part of each dataset at most.

Where a part ends depends on the rows alone, so equal rows make equal files, hence a dataset of the same name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate, chain
from pathlib import Path
from typing import Any

import pyarrow as pa

from clawpipe.contracts.odcs import newest_version
from clawpipe.contracts.schema import schema_of
from clawpipe.messages import Message, ToolCall
from clawpipe.store.artifacts import Store
from clawpipe.store.datasets import publish_files, write_parquet
from clawpipe.store.parts import PART_ROWS
from clawpipe.store.refs import DatasetRef

MESSAGES = schema_of("trajectories").field("messages").type
PART_BYTES = 64 << 20


def record_batch(rows: Sequence[Mapping[str, Any]], schema: pa.Schema) -> pa.RecordBatch:
    """Rows by column name, with messages as sequences of `Message`; a column that a row lacks is null.

    Raises:
        ArrowException, TypeError, ValueError, OverflowError: a value of another type than its column's.
    """
    columns = [_column([row.get(field.name) for row in rows], field.type) for field in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _column(values: list[Any], kind: pa.DataType) -> pa.Array:
    return message_array(values) if kind == MESSAGES else pa.array(values, kind)


def message_array(conversations: Sequence[Sequence[Message] | None]) -> pa.ListArray:
    """Messages of many conversations, one list each; null where there is None."""
    said = list(chain.from_iterable(messages for messages in conversations if messages is not None))
    kind = MESSAGES.value_type
    fields = {
        "role": pa.array([message.role for message in said], pa.string()),
        "content": pa.array([message.content for message in said], pa.string()),
        "tool_calls": _call_array([message.tool_calls for message in said], kind.field("tool_calls").type),
        "tool_call_id": pa.array([message.tool_call_id for message in said], pa.string()),
        "name": pa.array([message.name for message in said], pa.string()),
    }
    return _lists(conversations, _structs(fields, kind), MESSAGES)


def _call_array(calls: Sequence[Sequence[ToolCall]], kind: pa.DataType) -> pa.ListArray:
    made = list(chain.from_iterable(calls))
    fields = {
        "id": pa.array([call.id for call in made], pa.string()),
        "name": pa.array([call.name for call in made], pa.string()),
        "arguments": pa.array([call.arguments for call in made], pa.string()),
        "malformed": pa.array([call.malformed for call in made], pa.bool_()),
    }
    return _lists(calls, _structs(fields, kind.value_type), kind)


def _structs(fields: Mapping[str, pa.Array], kind: pa.StructType) -> pa.StructArray:
    return pa.StructArray.from_arrays([fields[field.name] for field in kind], fields=list(kind))


def _lists(parts: Sequence[Sequence[Any] | None], values: pa.Array, kind: pa.DataType) -> pa.ListArray:
    offsets = pa.array(list(accumulate((len(part or ()) for part in parts), initial=0)), pa.int32())
    return pa.ListArray.from_arrays(offsets, values, type=kind, mask=pa.array([part is None for part in parts], pa.bool_()))


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
