"""Write rows to a dataset part by part, so that memory holds at most one part of each dataset.

The rows alone determine where a part ends, so equal rows make equal files, and a dataset with the same digest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate, chain
from pathlib import Path
from typing import Any

import pyarrow as pa

from clawpipe.core.contracts.odcs import newest_version
from clawpipe.core.contracts.schema import schema_of
from clawpipe.core.conversation.messages import Message, ToolCall
from clawpipe.core.store.artifacts import Store
from clawpipe.core.store.datasets import publish_files, write_parquet
from clawpipe.core.store.parts import PART_ROWS
from clawpipe.core.store.refs import DatasetRef

MESSAGES = schema_of("trajectories").field("messages").type
PART_BYTES = 64 << 20


def record_batch(rows: Sequence[Mapping[str, Any]], schema: pa.Schema) -> pa.RecordBatch:
    """Convert rows to columns. Messages are sequences of `Message`; a column that a row lacks is null.

    Raises:
        ArrowException, TypeError, ValueError, OverflowError: a value does not have the type of its column.
    """
    columns = [_column([row.get(field.name) for row in rows], field.type) for field in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _column(values: list[Any], kind: pa.DataType) -> pa.Array:
    return message_array(values) if kind == MESSAGES else pa.array(values, kind)


def message_array(conversations: Sequence[Sequence[Message] | None]) -> pa.ListArray:
    """Convert the messages of many conversations to an array of lists; None becomes null."""
    flat = list(chain.from_iterable(messages for messages in conversations if messages is not None))
    kind = MESSAGES.value_type
    fields = {
        "role": pa.array([message.role for message in flat], pa.string()),
        "content": pa.array([message.content for message in flat], pa.string()),
        "tool_calls": _call_array([message.tool_calls for message in flat], kind.field("tool_calls").type),
        "tool_call_id": pa.array([message.tool_call_id for message in flat], pa.string()),
        "name": pa.array([message.name for message in flat], pa.string()),
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
    """Writes the rows of one dataset to a subdirectory."""

    def __init__(self, directory: Path, name: str) -> None:
        self.name, self.rows = name, 0
        self._directory, self._schema = directory / name, schema_of(name)
        self._pending, self._pending_rows, self._pending_bytes = list[pa.RecordBatch](), 0, 0
        self._files: list[Path] = []

    def add(self, rows: pa.RecordBatch, size: int) -> None:
        """Add rows in the contract's columns. `size` is their size in bytes in the process that made them; copies may differ."""
        if not rows.num_rows:
            return
        self._pending.append(rows)
        self.rows += rows.num_rows
        self._pending_rows, self._pending_bytes = self._pending_rows + rows.num_rows, self._pending_bytes + size
        while self._pending_rows >= PART_ROWS or self._pending_bytes >= PART_BYTES:
            self._write(PART_ROWS)

    def publish(self, store: Store, parents: Sequence[str] = ()) -> DatasetRef:
        """Publish the dataset of all rows; an empty one if there are none."""
        if self._pending or not self._files:
            self._write(PART_ROWS)
        return publish_files(store, self.name, self._files, schema_version=newest_version(self.name), parents=parents)

    def _write(self, rows: int) -> None:
        table = pa.Table.from_batches(self._pending, self._schema)
        self._directory.mkdir(parents=True, exist_ok=True)
        self._files.append(self._directory / f"part-{len(self._files):05d}.parquet")
        write_parquet(table.slice(0, rows), self._files[-1])
        self._pending = table.slice(rows).to_batches()
        left = table.num_rows - min(rows, table.num_rows)
        self._pending_rows, self._pending_bytes = left, self._pending_bytes * left // max(table.num_rows, 1)
