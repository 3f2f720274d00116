"""Read spans of Arize Phoenix and others that follow OpenInference, in the three ways in which their attributes are written.

    {"attributes": {"llm": {"input_messages": [{"message": {"role", "content"}}], "output_messages": [...]}}}    nested
    {"attributes.llm.input_messages": [{"message.role": ..., "message.content": ...}]}                           a table's columns
    {"attributes": {"llm.input_messages.0.message.role": ...}}                                                   OpenTelemetry's

Only spans of the kind LLM hold both sides of a call; others are refused by their kind.
"""

from __future__ import annotations

from typing import Any

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.data.importers.formats.telemetry import span_failed
from clawpipe.data.importers.formats.traces.sides import read_sides
from clawpipe.data.importers.record import Conversation
from clawpipe.data.importers.strict_json import RefusedError
from clawpipe.data.importers.values import nested, numbered, object_of, text_of, unspelled, without

_PREFIX = "attributes."
_IN, _OUT = ("llm", "input_messages"), ("llm", "output_messages")


def attributes_of(record: JsonObject) -> JsonObject:
    """Return the attributes of a span as nested objects, from any of the three ways."""
    given = object_of(record.get("attributes")) or {
        name.removeprefix(_PREFIX): value for name, value in record.items() if name.startswith(_PREFIX) and value is not None
    }
    return nested(given)


def _at(whole: JsonObject, *path: str) -> Any:
    value: Any = whole
    for name in path:
        value = object_of(value).get(name)
    return value


def is_phoenix(record: JsonObject) -> bool:
    if not any(name.startswith(("attributes", "span_kind")) for name in record):
        return False
    found = attributes_of(record)
    return "openinference" in found or _at(found, *_OUT) is not None or _at(found, *_IN) is not None


def read_phoenix(record: JsonObject) -> list[Conversation]:
    """Read a span.

    Raises:
        RefusedError: it is of another kind, failed, or holds no messages.
    """
    found = attributes_of(record)
    kind = _at(found, "openinference", "span", "kind") or record.get("span_kind")
    if kind not in (None, "LLM"):
        raise RefusedError("an OpenInference span of another kind than LLM")
    if span_failed(record, _at(found, "error", "type")):
        raise RefusedError("an OpenInference span that failed")
    asked, answered = _messages(_at(found, *_IN)), _messages(_at(found, *_OUT))
    known = {
        "session_id": text_of(_at(found, "session", "id")),
        "user": text_of(_at(found, "user", "id")),
        "model": text_of(_at(found, "llm", "model_name")),
        "tools": [tool for one in numbered(_at(found, "llm", "tools")) if (tool := _tool(one))],
    }
    sides = (asked or _at(found, "input", "value"), answered or _at(found, "output", "value"))
    rest = {name: value for name, value in record.items() if not name.startswith(_PREFIX)}
    return read_sides("an OpenInference span", *sides, known, without(rest, "attributes"))


def _tool(one: JsonObject) -> Any:
    schema = one.get("tool.json_schema", _at(one, "tool", "json_schema"))
    return unspelled(schema)


def _messages(value: Any) -> list[JsonObject]:
    return [_message(one) for one in numbered(value)]


def _message(one: JsonObject) -> JsonObject:
    message = object_of(nested(one).get("message"))
    calls = [_call(call) for call in numbered(message.get("tool_calls"))]
    content = message.get("content") or [_part(nested(part)) for part in numbered(message.get("contents"))]
    made = {name: message[name] for name in ("role", "name", "tool_call_id") if message.get(name)}
    return made | {"content": content or ""} | ({"tool_calls": calls} if calls else {})


def _part(one: JsonObject) -> JsonObject:
    """Return a part of a message in the form of the chat API; a picture stands in an object within an object."""
    part = object_of(one.get("message_content"))
    if isinstance(part.get("text"), str):
        return {"type": "text", "text": part["text"]}
    picture = _at(part, "image", "image")
    return part | ({"type": "image", "image": picture} if picture else {})


def _call(one: JsonObject) -> JsonObject:
    call = object_of(nested(one).get("tool_call"))
    function = object_of(call.get("function"))
    return {"id": call.get("id"), "function": {name: function.get(name) for name in ("name", "arguments")}}
