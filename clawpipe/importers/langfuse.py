"""Read what Langfuse exports: traces, and their observations.

    {"type": "GENERATION", "traceId", "sessionId", "model", "input": [messages], "output": {message}}    an observation
    {"id", "timestamp", "sessionId", "userId", "input", "output", "observations": [...]}                 a trace

One with messages, or texts, in `input` and `output` is read as a log of a request and its response. A trace is read by its own
input and output, and not by those of its observations, which are records of their own.
"""

from __future__ import annotations

from typing import Any

from clawpipe.importers.chat import read_chat
from clawpipe.importers.record import Conversation
from clawpipe.importers.strict_json import RefusedError
from clawpipe.json_types import JsonObject
from clawpipe.wire.arguments import parsed

_SPEAKING = ("GENERATION", "AGENT")
_KINDS = (*_SPEAKING, "SPAN", "EVENT", "TOOL", "CHAIN", "RETRIEVER", "EVALUATOR", "EMBEDDING", "GUARDRAIL")
_NAMES = {"sessionId": "session_id", "userId": "user_id"}
_SAYS = ("role", "content", "tool_calls", "choices", "message", "candidates")


def is_langfuse(record: JsonObject) -> bool:
    kind, has_sides = record.get("type"), "input" in record and "output" in record
    is_observation = kind in _KINDS and any(name in record for name in ("traceId", "sessionId", "parentObservationId"))
    return has_sides and (is_observation or (isinstance(record.get("observations"), list) and "timestamp" in record))


def read_langfuse(record: JsonObject) -> list[Conversation]:
    """Read a trace, or an observation of what a model said.

    Raises:
        RefusedError: another observation, or no messages in its input and output.
    """
    kind = record.get("type")
    if kind is not None and kind not in _SPEAKING:
        raise RefusedError(f"a Langfuse observation of the kind {kind}, which is no answer of a model")
    asked, answer = _messages(record["input"]), _answer(record["output"])
    if asked is None or answer is None:
        raise RefusedError("a Langfuse record without messages in its input and output")
    rest = {_NAMES.get(name, name): value for name, value in record.items() if name not in ("input", "output", "type")}
    return read_chat(rest | {"request": asked, "response": answer})


def _messages(given: Any) -> JsonObject | None:
    """Return a request with the messages of an input: a list, or an object with them, perhaps as a JSON text."""
    value = _value(given)
    if isinstance(value, str) and value:
        return {"messages": [{"role": "user", "content": value}]}
    listed = value.get("messages") if isinstance(value, dict) else value
    if not isinstance(listed, list) or not listed or not all(isinstance(part, dict) and "role" in part for part in listed):
        return None
    return value if isinstance(value, dict) else {"messages": listed}


def _answer(given: Any) -> JsonObject | None:
    """Return a response with the message of an output: an object, a list with one, or a text."""
    value = _value(given)
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    if isinstance(value, str) and value:
        return {"message": {"content": value}}
    if not isinstance(value, dict) or not any(name in value for name in _SAYS):
        return None
    return {"message": value} if "role" in value else value


def _value(given: Any) -> Any:
    """Return a value, parsed if it is a text with a JSON object or list."""
    found = parsed(given) if isinstance(given, str) and given[:1] in ("{", "[") else None
    return given if found is None else found
