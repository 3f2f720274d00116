"""Read spans of Braintrust's logs and experiments.

    {"span_id", "root_span_id", "span_attributes": {"type": "llm"}, "input": [messages], "output", "metadata", "scores": {}}

The mean of its scores is the score of the span.
"""

from __future__ import annotations

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.data.importers.formats.traces.sides import of_trace, read_sides
from clawpipe.data.importers.record import Conversation
from clawpipe.data.importers.strict_json import RefusedError
from clawpipe.data.importers.values import name_of, object_of, text_of, without

_SESSIONS = ("session_id", "thread_id", "conversation_id")
_SPEAKING = ("llm", "eval", "task", None)  # types of spans whose sides are a question and its answer


def is_braintrust(record: JsonObject) -> bool:
    return "root_span_id" in record and "span_id" in record and "input" in record and "output" in record


def read_braintrust(record: JsonObject) -> list[Conversation]:
    """Read a span.

    Raises:
        RefusedError: it failed, is of another type, or holds no messages.
    """
    kind = object_of(record.get("span_attributes")).get("type")
    if record.get("error"):
        raise RefusedError("a span of Braintrust that failed")
    if kind not in _SPEAKING:
        raise RefusedError("a span of Braintrust of another type than llm")
    metadata = object_of(record.get("metadata"))
    scores = [float(score) for score in object_of(record.get("scores")).values() if type(score) in (int, float)]
    known = {
        "session_id": name_of(metadata, *_SESSIONS),
        "user": name_of(metadata, "user_id", "user"),
        "model": text_of(metadata.get("model")),
        "tools": metadata.get("tools"),
        "score": sum(scores) / len(scores) if scores else None,
    }
    found = read_sides("a span of Braintrust", record["input"], record["output"], known, without(record, "input", "output"))
    return of_trace(found, name_of(record, "root_span_id"), wraps=kind != "llm")
