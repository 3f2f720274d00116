"""Read what Langfuse exports: traces, and their observations.

    {"type": "GENERATION", "traceId", "sessionId", "model", "input": [messages], "output": {message}}    an observation
    {"id", "timestamp", "sessionId", "userId", "input", "output", "observations": [...]}                 a trace

Exports to a storage spell names in snake case (`trace_id`). Of the `scores` the one that is named as a user's (`user-feedback`) and
the one that is named as the whole (`overall`) judge the conversation, else the only one that is a number, true or false. Of several
others nobody knows which one counts.

One with messages, or texts, in `input` and `output` is read as a log of a request and its response. A trace is read by its own
input and output; where these are neither, by the generations among its observations.
"""

from __future__ import annotations

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.data.importers.formats.traces.scores import counted_scores
from clawpipe.data.importers.formats.traces.sides import answered_of, asked_of, of_trace, read_each, read_log
from clawpipe.data.importers.record import Conversation
from clawpipe.data.importers.strict_json import RefusedError
from clawpipe.data.importers.values import name_of, objects_of

_CALL = "GENERATION"
_SPEAKING = (_CALL, "AGENT")
_KINDS = (*_SPEAKING, "SPAN", "EVENT", "TOOL", "CHAIN", "RETRIEVER", "EVALUATOR", "EMBEDDING", "GUARDRAIL")
_NAMES = {"sessionId": "session_id", "userId": "user_id", "provided_model_name": "model"}
_TRACES = ("release", "version", "bookmarked", "public", "tags", "environment")
_OF_TRACE = ("traceId", "trace_id")
_PLACES = (*_OF_TRACE, "sessionId", "parentObservationId", "parent_observation_id")


def is_langfuse(record: JsonObject) -> bool:
    kind, has_sides = record.get("type"), "input" in record and "output" in record
    is_observation = kind in _KINDS and any(name in record for name in _PLACES)
    return has_sides and (is_observation or ("timestamp" in record and _is_trace(record)))


def _is_trace(record: JsonObject) -> bool:
    """Whether a record with a time is a trace, with its observations, or without them, as in an export to a storage."""
    return isinstance(record.get("observations"), list) or (
        "type" not in record and "id" in record and sum(name in record for name in _TRACES) > 1
    )


def read_langfuse(record: JsonObject) -> list[Conversation]:
    """Read a trace, or an observation of what a model said.

    Raises:
        RefusedError: another observation, one that failed, or no messages in its input and output.
    """
    kind = record.get("type")
    if kind is not None and kind not in _SPEAKING:
        raise RefusedError(f"a Langfuse observation of the kind {kind}, which is no answer of a model")
    spoken = _spoken(objects_of(record.get("observations")))
    if _failed(record) or (spoken and all(map(_failed, spoken))):
        raise RefusedError("a Langfuse record of a call that failed")
    asked, answer = asked_of(record["input"]), answered_of(record["output"])
    if (asked is None or answer is None) and spoken:
        kept = {name: record[name] for name in _NAMES if record.get(name) is not None}
        return read_each((kept | one for one in spoken), read_langfuse, "unread")
    if asked is None or answer is None:
        raise RefusedError("a Langfuse record without messages in its input and output")
    rest = {_NAMES.get(name, name): value for name, value in record.items() if name not in ("input", "output", "type")}
    found = read_log("a Langfuse record", rest | _scored(rest) | {"request": asked, "response": answer})
    return of_trace(found, name_of(record, *(_OF_TRACE if kind else ("id",))), wraps=kind != _CALL)


def _spoken(observations: list[JsonObject]) -> list[JsonObject]:
    """Return the calls of a model among observations, else the agents, which repeat calls."""
    calls = [one for one in observations if one.get("type") == _CALL]
    return calls or [one for one in observations if one.get("type") in _SPEAKING]


def _scored(rest: JsonObject) -> JsonObject:
    """Return the scores that count, as a row says them; what a mapping says counts before them."""
    found = counted_scores(objects_of(rest.get("scores"))) | {name: rest[name] for name in ("reward", "score") if name in rest}
    return found | {"scores": None, "export": {"scores": rest["scores"]}} if found and "scores" in rest else {}


def _failed(record: JsonObject) -> bool:
    return record.get("level") == "ERROR"
