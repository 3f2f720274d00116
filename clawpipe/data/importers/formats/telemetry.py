"""Read OpenTelemetry spans of generative AI: requests and responses of a model, if content was captured.

    {"resourceSpans": [{"scopeSpans": [{"spans": [...]}]}]}                         a collector's file exporter
    {"name": "chat m", "attributes": {"gen_ai.input.messages": ..., ...}}            one span

Messages come from the attributes `gen_ai.input.messages` and `gen_ai.output.messages` of the span or of its events, or from the
numbered attributes of OpenLLMetry (`gen_ai.prompt.0.content`). Each output message is an answer; the input is context.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import zip_longest
from typing import Any

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.data.importers.formats.chat import read_chat
from clawpipe.data.importers.record import Conversation
from clawpipe.data.importers.strict_json import RefusedError
from clawpipe.data.wire.arguments import parsed

_REASONS = "gen_ai.response.finish_reasons"
_INPUT, _OUTPUT = "gen_ai.input.messages", "gen_ai.output.messages"
_NUMBERED = re.compile(r"gen_ai\.(prompt|completion)\.(\d{1,4})\.(role|content|finish_reason)")
_SESSIONS = ("gen_ai.conversation.id", "session.id")
_USERS = ("user.id", "enduser.id")
_MODELS = ("gen_ai.response.model", "gen_ai.request.model")
_VALUES = ("stringValue", "intValue", "doubleValue", "boolValue")


def is_telemetry(record: JsonObject) -> bool:
    return isinstance(record.get("resourceSpans"), list) or _has_messages(_attributes(record))


def read_telemetry(record: JsonObject) -> Iterator[Conversation]:
    """Yield a conversation for each answer of each span; the first holds the spans without messages in `extra`.

    Raises:
        RefusedError: no span holds messages.
    """
    spans = list(_spans(record)) if "resourceSpans" in record else [record]
    speaking = [span for span in spans if _has_messages(_attributes(span))]
    if not speaking:
        raise RefusedError("no messages in its spans")
    others = [span for span in spans if span not in speaking]
    for number, span in enumerate(speaking):
        yield from read_chat(_as_log(span) | ({"spans": others} if others and number == 0 else {}))


def _spans(record: JsonObject) -> Iterator[JsonObject]:
    for scope in _inner([record], "resourceSpans", "scopeSpans"):
        yield from (span for span in _listed(scope.get("spans")) if isinstance(span, dict))


def _inner(parts: list[Any], *names: str) -> list[Any]:
    for name in names:
        parts = [inner for part in parts for inner in _listed(part.get(name)) if isinstance(inner, dict)]
    return parts


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _attributes(span: JsonObject) -> JsonObject:
    """Return the attributes of a span and of its events by name, from any of their forms."""
    found: JsonObject = {}
    for holder in [*(event for event in _listed(span.get("events")) if isinstance(event, dict)), span]:
        found |= _plain(holder.get("attributes"))
    return found or {name.removeprefix("attributes."): value for name, value in span.items() if "gen_ai." in name}


def _plain(attributes: Any) -> JsonObject:
    if isinstance(attributes, dict):
        return attributes
    pairs = [part for part in _listed(attributes) if isinstance(part, dict) and isinstance(part.get("key"), str)]
    return {part["key"]: _value(part.get("value")) for part in pairs}


def _value(value: Any) -> Any:
    """Unwrap a value of the protocol from its type."""
    if not isinstance(value, dict):
        return value
    if isinstance(array := value.get("arrayValue"), dict):
        return [_value(part) for part in _listed(array.get("values"))]
    if isinstance(pairs := value.get("kvlistValue"), dict):
        return _plain(pairs.get("values"))
    return next((value[name] for name in _VALUES if name in value), value)


def _has_messages(attributes: JsonObject) -> bool:
    return _OUTPUT in attributes or any(name.startswith("gen_ai.completion.0.") for name in attributes)


def _as_log(span: JsonObject) -> JsonObject:
    """Convert a span to the log of a request and its response."""
    attributes = _attributes(span)
    asked, answers = _messages(attributes, _INPUT, "prompt"), _messages(attributes, _OUTPUT, "completion")
    system = _parsed_value(attributes.get("gen_ai.system_instructions"))
    named = {"session_id": _named(attributes, _SESSIONS), "user": _named(attributes, _USERS), "model": _named(attributes, _MODELS)}
    taken = (_INPUT, _OUTPUT, "gen_ai.system_instructions", "gen_ai.tool.definitions", *_SESSIONS, *_USERS)
    kept = {name: value for name, value in attributes.items() if name not in taken and not _NUMBERED.fullmatch(name)}
    rest = {name: value for name, value in span.items() if name not in ("attributes", "events") and "gen_ai." not in name}
    return {name: value for name, value in named.items() if value} | {
        "request": {
            "messages": asked,
            "system": system if isinstance(system, str | list) else None,
            "tools": attributes.get("gen_ai.tool.definitions"),
            "temperature": attributes.get("gen_ai.request.temperature"),
        },
        "choices": [
            {"message": answer, "finish_reason": str(answer.get("finish_reason") or reason or "")}
            for answer, reason in zip_longest(answers, _listed(_parsed_value(attributes.get(_REASONS)))[: len(answers)])
        ],
        "span": rest | {"attributes": kept},
    }


def _messages(attributes: JsonObject, name: str, numbered: str) -> list[JsonObject]:
    value = _parsed_value(attributes.get(name))
    if isinstance(value, list):
        return [part for part in value if isinstance(part, dict)]
    found: dict[int, JsonObject] = {}
    for key, part in attributes.items():
        if (match := _NUMBERED.fullmatch(key)) and match[1] == numbered:
            found.setdefault(int(match[2]), {"role": "assistant" if numbered == "completion" else "user"})[match[3]] = part
    return [found[place] for place in sorted(found)]


def _parsed_value(value: Any) -> Any:
    """Parse an attribute that holds JSON as a text; attributes hold only texts and numbers."""
    found = parsed(value) if isinstance(value, str) else value
    return value if found is None else found


def _named(attributes: JsonObject, names: tuple[str, ...]) -> str | None:
    return next((str(attributes[name]) for name in names if attributes.get(name)), None)
