"""Read spans of Arize Phoenix and others that follow OpenInference, in the three ways in which their attributes are written.

    {"attributes": {"llm": {"input_messages": [{"message": {"role", "content"}}], "output_messages": [...]}}}    nested
    {"attributes.llm.input_messages": [{"message.role": ..., "message.content": ...}]}                           a table's columns
    {"attributes": {"llm.input_messages.0.message.role": ...}}                                                   OpenTelemetry's

Only spans of the kind LLM hold both sides of a call; others are refused by their kind.
"""

from __future__ import annotations

from typing import Any

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.data.importers.formats.traces.sides import read_sides
from clawpipe.data.importers.record import Conversation
from clawpipe.data.importers.strict_json import RefusedError
from clawpipe.data.importers.values import object_of, objects_of, text_of, unspelled, without

_PREFIX = "attributes."
_IN, _OUT = ("llm", "input_messages"), ("llm", "output_messages")


def attributes_of(record: JsonObject) -> JsonObject:
    """Return the attributes of a span as nested objects, from any of the three ways."""
    given = object_of(record.get("attributes")) or {
        name.removeprefix(_PREFIX): value for name, value in record.items() if name.startswith(_PREFIX) and value is not None
    }
    return _undotted(given)


def _put(nested: JsonObject, path: list[str], value: Any) -> None:
    for name in path[:-1]:
        inner = nested.get(name)
        nested = nested.setdefault(name, {}) if isinstance(inner, dict) or inner is None else {}
    known = nested.get(path[-1])
    nested[path[-1]] = known | value if isinstance(known, dict) and isinstance(value, dict) else value


def _at(nested: JsonObject, *path: str) -> Any:
    value: Any = nested
    for name in path:
        value = object_of(value).get(name)
    return value


def is_phoenix(record: JsonObject) -> bool:
    if not any(name.startswith(("attributes", "span_kind")) for name in record):
        return False
    nested = attributes_of(record)
    return "openinference" in nested or _at(nested, *_OUT) is not None or _at(nested, *_IN) is not None


def read_phoenix(record: JsonObject) -> list[Conversation]:
    """Read a span.

    Raises:
        RefusedError: it is of another kind, failed, or holds no messages.
    """
    nested = attributes_of(record)
    kind = _at(nested, "openinference", "span", "kind") or record.get("span_kind")
    if kind not in (None, "LLM"):
        raise RefusedError("an OpenInference span of another kind than LLM")
    if record.get("status_code") == "ERROR":
        raise RefusedError("an OpenInference span that failed")
    asked, answered = _messages(_at(nested, *_IN)), _messages(_at(nested, *_OUT))
    known = {
        "session_id": text_of(_at(nested, "session", "id")),
        "user": text_of(_at(nested, "user", "id")),
        "model": text_of(_at(nested, "llm", "model_name")),
        "tools": [tool for one in _numbered(_at(nested, "llm", "tools")) if (tool := _tool(one))],
    }
    sides = (asked or _at(nested, "input", "value"), answered or _at(nested, "output", "value"))
    rest = {name: value for name, value in record.items() if not name.startswith(_PREFIX)}
    return read_sides("an OpenInference span", *sides, known, without(rest, "attributes"))


def _tool(one: JsonObject) -> Any:
    schema = one.get("tool.json_schema", _at(one, "tool", "json_schema"))
    return unspelled(schema)


def _numbered(value: Any) -> list[JsonObject]:
    """Return a list of objects, also from an object whose keys are numbers."""
    inner = object_of(value)
    if inner and all(name.isdecimal() for name in inner):
        return [object_of(inner[name]) for name in sorted(inner, key=int)]
    return objects_of(value.tolist() if hasattr(value, "tolist") else value)


def _messages(value: Any) -> list[JsonObject]:
    return [_message(one) for one in _numbered(value)]


def _message(one: JsonObject) -> JsonObject:
    message = object_of(_undotted(one).get("message"))
    calls = [_call(call) for call in _numbered(message.get("tool_calls"))]
    parts = [object_of(_at(_undotted(part), "message_content")) for part in _numbered(message.get("contents"))]
    content = message.get("content") or [{"type": "text", "text": part.get("text") or ""} for part in parts]
    made = {name: message[name] for name in ("role", "name", "tool_call_id") if message.get(name)}
    return made | {"content": content or ""} | ({"tool_calls": calls} if calls else {})


def _undotted(part: JsonObject) -> JsonObject:
    nested: JsonObject = {}
    for name, value in part.items():
        _put(nested, name.split("."), value)
    return nested


def _call(one: JsonObject) -> JsonObject:
    call = object_of(_undotted(one).get("tool_call"))
    function = object_of(call.get("function"))
    return {"id": call.get("id"), "function": {name: function.get(name) for name in ("name", "arguments")}}
