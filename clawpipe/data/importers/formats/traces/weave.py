"""Read calls of W&B Weave, as its export and `client.get_calls` give them.

    {"id", "op_name": "weave:///...:openai.chat.completions.create:...", "trace_id", "inputs": {"messages", "model"}, "output"}

A call of another function, which names no model, is read where its inputs and output are texts or messages, and where no calls of a
model are recorded in its trace.
"""

from __future__ import annotations

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.data.importers.formats.traces.sides import of_trace, read_sides
from clawpipe.data.importers.record import Conversation
from clawpipe.data.importers.strict_json import RefusedError
from clawpipe.data.importers.values import name_of, object_of, text_of, without

_SESSIONS = ("session_id", "thread_id", "conversation_id")


def is_weave(record: JsonObject) -> bool:
    return isinstance(record.get("op_name"), str) and "inputs" in record and "output" in record


def read_weave(record: JsonObject) -> list[Conversation]:
    """Read a call.

    Raises:
        RefusedError: it failed, or holds no messages.
    """
    if record.get("exception"):
        raise RefusedError("a call of Weave that failed")
    inputs, attributes = object_of(record["inputs"]), object_of(record.get("attributes"))
    known = {
        "session_id": name_of(record, "thread_id") or name_of(attributes, *_SESSIONS),
        "user": name_of(attributes, "user_id", "user"),
        "model": text_of(inputs.get("model")),
    }
    rest = without(record, "inputs", "output")
    found = read_sides("a call of Weave", without(inputs, "self"), record["output"], known, rest)
    return of_trace(found, name_of(record, "trace_id"), wraps="model" not in inputs)
