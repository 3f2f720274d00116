"""Rows as Arrow columns. Messages, which are most of what rows hold, go from objects to columns without a row in between."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate, chain
from typing import Any

import pyarrow as pa

from clawpipe.contracts.schema import schema_of
from clawpipe.messages import Message, ToolCall

MESSAGES = schema_of("trajectories").field("messages").type


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
