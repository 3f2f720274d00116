"""Read OpenTelemetry spans of generative AI: requests and responses of a model, if content was captured.

    {"resourceSpans": [{"scopeSpans": [{"spans": [...]}]}]}                         a collector's file exporter
    {"name": "chat m", "attributes": {"gen_ai.input.messages": ..., ...}}            one span

Messages come from the attributes `gen_ai.input.messages` and `gen_ai.output.messages` of the span or of its events, or from the
numbered attributes of OpenLLMetry (`gen_ai.prompt.0.content`, `gen_ai.completion.0.tool_calls.0.name`; a tool on offer is
`llm.request.functions.0.name`). Each output message is an answer; the input is context.
The output of an agent's span that holds results of tools goes on with its input. Beside the calls of its model, which have the same
trace, such a span repeats these, and is left out. A span that failed is refused.
"""

from __future__ import annotations

import re
from itertools import zip_longest
from typing import Any

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.data.importers.formats.chat import read_chat
from clawpipe.data.importers.formats.traces.sides import of_trace, read_each
from clawpipe.data.importers.record import Conversation
from clawpipe.data.importers.strict_json import RefusedError
from clawpipe.data.importers.values import name_of, nested, numbered, object_of, text_of, unspelled, without
from clawpipe.data.wire.arguments import parsed

_REASONS = "gen_ai.response.finish_reasons"
_INPUT, _OUTPUT = "gen_ai.input.messages", "gen_ai.output.messages"
_NUMBERED = re.compile(r"(gen_ai\.prompt|gen_ai\.completion|llm\.request\.functions)\.(\d{1,4}\..+)")
_CALLS = ("tool_calls", "function_call", "tool_call_id")  # fields of a numbered message that are read
_CALLING = re.compile("tool|function")  # in names of fields that say what a message calls or answers
_ASKED, _ANSWERED, _TOOLS = "gen_ai.prompt", "gen_ai.completion", "llm.request.functions"
_WHOLE = re.compile(r"-?\d{1,19}")
_FAILED = re.compile(r"(STATUS_?CODE[._])?(ERROR|2)", re.IGNORECASE)
_SESSIONS = ("gen_ai.conversation.id", "session.id")
_USERS = ("user.id", "enduser.id")
_MODELS = ("gen_ai.response.model", "gen_ai.request.model")
_VALUES = ("stringValue", "intValue", "doubleValue", "boolValue")
_AGENTS = ("invoke_agent", "invoke_workflow")


def is_telemetry(record: JsonObject) -> bool:
    return isinstance(record.get("resourceSpans"), list) or _has_messages(_attributes(record))


def read_telemetry(record: JsonObject) -> list[Conversation]:
    """Return a conversation for each answer of each span; `extra` of the first holds all other spans, with the reasons.

    Raises:
        RefusedError: no span can be read; with the reason of the first one that holds messages.
    """
    spans = _spans(record) if "resourceSpans" in record else [record]
    speaking_first = sorted(spans, key=lambda span: not _has_messages(_attributes(span)))
    called = {trace_of(span) for span in spans if _has_messages(_attributes(span)) and not _is_agent(span)}

    def read(span: JsonObject) -> list[Conversation]:
        if _is_agent(span) and trace_of(span) in called:
            raise RefusedError("a span of an agent, beside those of its calls")
        return of_trace(read_chat(_as_log(span)), trace_of(span), wraps=_is_agent(span))

    return read_each(speaking_first, read, "spans")


def trace_of(span: JsonObject) -> str | None:
    """Return the name of a span's trace, in one of the ways in which exporters write it."""
    return name_of(span, "traceId", "trace_id", "context.trace_id") or name_of(
        object_of(span.get("context")), "trace_id", "traceId"
    )


def _is_agent(span: JsonObject) -> bool:
    return _attributes(span).get("gen_ai.operation.name") in _AGENTS


def span_failed(span: JsonObject, error: Any) -> bool:
    """Whether a span ended in an error, by its status in one of the ways in which exporters write it, or by its `error.type`."""
    status = span.get("status")
    codes = [status, span.get("status_code"), *(object_of(status).get(name) for name in ("code", "status_code"))]
    return bool(error) or any(_FAILED.fullmatch(str(code)) for code in codes)


def _spans(record: JsonObject) -> list[JsonObject]:
    return _inner([record], "resourceSpans", "scopeSpans", "spans")


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
    if isinstance(value.get("intValue"), str):  # as JSON of the protocol spells 64 bits
        return int(value["intValue"]) if _WHOLE.fullmatch(value["intValue"]) else value["intValue"]
    return next((value[name] for name in _VALUES if name in value), value)


def _has_messages(attributes: JsonObject) -> bool:
    return _OUTPUT in attributes or any(name.startswith("gen_ai.completion.0.") for name in attributes)


def _as_log(span: JsonObject) -> JsonObject:
    """Convert a span to the log of a request and its response.

    Raises:
        RefusedError: it holds no messages, failed, or holds tool calls that are not understood.
    """
    attributes = _attributes(span)
    if not _has_messages(attributes):
        raise RefusedError("no messages in its spans")
    if span_failed(span, attributes.get("error.type")):
        raise RefusedError("a span that failed")
    asked, answers = _messages(attributes, _INPUT, _ASKED), _answers(_messages(attributes, _OUTPUT, _ANSWERED))
    system = _parsed_value(attributes.get("gen_ai.system_instructions"))
    named = {"session_id": _named(attributes, _SESSIONS), "user": _named(attributes, _USERS), "model": _named(attributes, _MODELS)}
    taken = (_INPUT, _OUTPUT, "gen_ai.system_instructions", "gen_ai.tool.definitions", *_SESSIONS, *_USERS)
    kept = {name: value for name, value in attributes.items() if name not in taken and not _NUMBERED.fullmatch(name)}
    rest = {name: value for name, value in span.items() if name not in ("attributes", "events") and "gen_ai." not in name}
    known = {name: value for name, value in named.items() if value} | {"span": rest | {"attributes": kept}}
    request = {
        "system": system if isinstance(system, str | list) else None,
        "tools": attributes.get("gen_ai.tool.definitions") or [_tool(one) for one in _numbered(attributes, _TOOLS)],
        "temperature": attributes.get("gen_ai.request.temperature"),
    }
    if any(answer.get("role") not in (None, "assistant") for answer in answers):
        return known | request | {"messages": [*(one | {"weight": 0} for one in asked), *answers]}
    return known | {
        "request": request | {"messages": asked},
        "choices": [
            {"message": answer, "finish_reason": str(answer.get("finish_reason") or reason or "")}
            for answer, reason in zip_longest(answers, _listed(_parsed_value(attributes.get(_REASONS)))[: len(answers)])
        ],
    }


def _messages(attributes: JsonObject, name: str, prefix: str) -> list[JsonObject]:
    value = _parsed_value(attributes.get(name))
    if isinstance(value, list):
        return [part for part in value if isinstance(part, dict)]
    role = "assistant" if prefix == _ANSWERED else "user"
    return [_message({"role": role} | one) for one in _numbered(attributes, prefix)]


def _numbered(attributes: JsonObject, prefix: str) -> list[JsonObject]:
    """Return the objects whose fields are numbered attributes, such as `gen_ai.prompt.0.role`."""
    matches = [(match, value) for name, value in attributes.items() if (match := _NUMBERED.fullmatch(name))]
    return numbered(nested({match[2]: value for match, value in matches if match[1] == prefix}))


def _message(one: JsonObject) -> JsonObject:
    """Return a numbered message in the form of the chat API.

    Raises:
        RefusedError: what it calls, or answers, is not understood: without that, the rest would be taught as all that was said.
    """
    calls = unspelled(one.get("tool_calls"))
    single = [unspelled(one["function_call"])] if "function_call" in one else []
    listed = [*numbered(calls), *single]
    unknown = [name for name in one if _CALLING.search(name) and name not in _CALLS]
    if unknown or (calls and not numbered(calls)) or not all(_name_of(call) for call in listed):
        raise RefusedError("a span with a tool call that is not understood")
    return without(one, "tool_calls", "function_call") | ({"tool_calls": listed} if listed else {})


def _name_of(call: Any) -> str | None:
    """Return the name of the tool that is called, in the form of OpenLLMetry or of the chat API."""
    return text_of(object_of(call).get("name")) or text_of(object_of(object_of(call).get("function")).get("name"))


def _answers(given: list[JsonObject]) -> list[JsonObject]:
    """Return the answers of a span; OpenLLMetry puts a thought before its answer, as one more."""
    thoughts = [one.get("content") if one.get("role") == "thinking" else None for one in given]
    return [
        one | ({"reasoning_content": before} if before else {})
        for one, before in zip(given, [None, *thoughts], strict=False)
        if one.get("role") != "thinking"
    ]


def _tool(one: JsonObject) -> JsonObject:
    names = {"input_schema": "parameters"}
    return {"type": "function", "function": {names.get(name, name): unspelled(value) for name, value in one.items()}}


def _parsed_value(value: Any) -> Any:
    """Parse an attribute that holds JSON as a text; attributes hold only texts and numbers."""
    found = parsed(value) if isinstance(value, str) else value
    return value if found is None else found


def _named(attributes: JsonObject, names: tuple[str, ...]) -> str | None:
    return next((str(attributes[name]) for name in names if attributes.get(name)), None)
