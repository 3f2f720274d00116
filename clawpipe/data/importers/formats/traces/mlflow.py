"""Read traces of MLflow: `Trace.to_json()`, and rows of `mlflow.search_traces()`.

    {"info": {"trace_id", "trace_metadata", "assessments"}, "data": {"spans": [...]}}
    {"trace_id", "trace_metadata", "assessments", "spans": [...], "request", "response"}

Each span of a call of a model is a request and its response; where a trace has none, its root is one. Attributes are JSON texts.
Feedback judges the span that it names, else the last call.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.data.importers.formats.telemetry import span_failed
from clawpipe.data.importers.formats.traces.scores import counted_scores
from clawpipe.data.importers.formats.traces.sides import of_trace, read_each, read_sides
from clawpipe.data.importers.record import Conversation
from clawpipe.data.importers.strict_json import RefusedError
from clawpipe.data.importers.values import name_of, object_of, objects_of, text_of, unspelled, without
from clawpipe.data.wire.arguments import parsed

_CALLS = ("CHAT_MODEL", "LLM")
_METADATA = ("trace_metadata", "request_metadata")  # the second of MLflow 2
_MARK, _SAID = "mlflow.spanType", "assessments"


def is_mlflow(record: JsonObject) -> bool:
    spans = _spans(record)
    return bool(spans) and any(name in _info(record) for name in _METADATA) and _MARK in object_of(spans[0].get("attributes"))


def read_mlflow(record: JsonObject) -> list[Conversation]:
    """Return a conversation for each call of a model in a trace.

    Raises:
        RefusedError: no call can be read; with the reason of the first.
    """
    info, spans = _info(record), _spans(record)
    calls = [span for span in spans if _attributes(span).get(_MARK) in _CALLS]
    speaking = calls or [span for span in spans if not span.get("parent_span_id") and not span.get("parent_id")]
    judged = _judged(record, info, speaking)
    metadata = next((object_of(info[name]) for name in _METADATA if name in info), {})
    known = {"session_id": name_of(metadata, "mlflow.trace.session"), "user": name_of(metadata, "mlflow.trace.user")}
    trace = without(info, "spans", "trace", "request", "response", "reward", "score", *(() if any(judged.values()) else (_SAID,)))
    first, *others = read_each(
        speaking, lambda span: _read(span, known | judged.get(id(span), {}), trace, wraps=not calls), "spans"
    )
    return [replace(first, extra=dict(first.extra) | _unread(record, info, judged)), *others]


def _info(record: JsonObject) -> JsonObject:
    return object_of(record["info"]) if "info" in record else record


def _spans(record: JsonObject) -> list[JsonObject]:
    return objects_of(record["spans"] if "spans" in record else object_of(record.get("data")).get("spans"))


def _attributes(span: JsonObject) -> JsonObject:
    """Return the attributes of a span, each of which is spelled as JSON."""
    spelled = object_of(span.get("attributes"))
    return {name: _value(value) for name, value in spelled.items()}


def _value(value: Any) -> Any:
    found = parsed(value) if isinstance(value, str) else None
    return value if found is None else found


def _judged(record: JsonObject, info: JsonObject, spans: Sequence[JsonObject]) -> dict[int, JsonObject]:
    """Return the scores that count, by the identity of the span that they judge; what a mapping says judges the last one."""
    feedback = [one for one in objects_of(info.get(_SAID)) if isinstance(one.get("feedback"), dict)]
    judged = {
        id(span): counted_scores([_score(one) for one in feedback if one.get("span_id") == span["span_id"]])
        for span in spans
        if "span_id" in span
    }
    of_trace = counted_scores([_score(one) for one in feedback if not one.get("span_id")])
    said = {name: record[name] for name in ("reward", "score") if name in record}
    return judged | {id(span): judged.get(id(span), {}) | of_trace | said for span in spans[-1:]}


def _unread(record: JsonObject, info: JsonObject, judged: Mapping[int, JsonObject]) -> JsonObject:
    """Return the feedback where none counts, under the path that leads to it."""
    unread = [] if any(judged.values()) else objects_of(info.get(_SAID))
    return {f"info.{_SAID}" if "info" in record else _SAID: unread} if unread else {}


def _score(assessment: JsonObject) -> JsonObject:
    return {"name": assessment.get("assessment_name", assessment.get("name")), "value": assessment["feedback"].get("value")}


def _read(span: JsonObject, known: JsonObject, trace: JsonObject, *, wraps: bool) -> list[Conversation]:
    attributes = _attributes(span)
    if span_failed(span, None):
        raise RefusedError("a span of MLflow that failed")
    request, response = (attributes.get(f"mlflow.span{side}") for side in ("Inputs", "Outputs"))
    named = {
        "model": text_of(attributes.get("mlflow.llm.model")) or text_of(object_of(request).get("model")),
        "tools": [] if object_of(request).get("tools") else unspelled(attributes.get("mlflow.chat.tools")),
    }
    found = read_sides("a span of MLflow", request, response, known | named, {"span": without(span, "attributes"), "trace": trace})
    return of_trace(found, name_of(trace, "trace_id", "request_id"), wraps=wraps)
