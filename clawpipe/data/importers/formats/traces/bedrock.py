"""Read Amazon Bedrock's log of model invocations, as it lies in S3, and in events of CloudWatch (`message`, `@message`).

    {"schemaType": "ModelInvocationLog", "modelId", "requestMetadata", "input": {"inputBodyJson"}, "output": {"outputBodyJson"}}

The bodies are those of the Converse API, of Anthropic's messages, or a prompt and its completion in the words of another maker. The
body of a streamed answer is the list of its events.
"""

from __future__ import annotations

from typing import Any

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.data.importers.formats.traces.sides import read_sides
from clawpipe.data.importers.record import Conversation
from clawpipe.data.importers.strict_json import RefusedError
from clawpipe.data.importers.values import name_of, object_of, objects_of, text_of, unspelled, without

_SESSIONS = ("session_id", "sessionId", "conversation_id", "conversationId", "thread_id")
_USERS = ("user_id", "userId", "user")
_PROMPTS = ("prompt", "inputText", "message")
_TEXTS = ("generation", "outputText", "completion", "text")
_REASONS = ("stop_reason", "stopReason", "finish_reason", "completionReason")
_GROWING = {"text_delta": "text", "thinking_delta": "thinking", "input_json_delta": "partial_json"}  # of Anthropic's deltas


def is_bedrock(record: JsonObject) -> bool:
    return _logged(record).get("schemaType") == "ModelInvocationLog"


def read_bedrock(record: JsonObject) -> list[Conversation]:
    """Read a logged invocation.

    Raises:
        RefusedError: it failed, or holds no messages.
    """
    log = _logged(record)
    if log.get("errorCode"):
        raise RefusedError("an invocation in Bedrock's log that failed")
    given, named = object_of(object_of(log.get("input")).get("inputBodyJson")), object_of(log.get("requestMetadata"))
    answered = unspelled(object_of(log.get("output")).get("outputBodyJson"))
    known = {
        "session_id": name_of(named, *_SESSIONS),
        "user": name_of(named, *_USERS),
        "model": text_of(log.get("modelId")),
        "tools": [_tool(one) for one in objects_of(object_of(given.get("toolConfig")).get("tools"))],
        "temperature": object_of(given.get("inferenceConfig")).get("temperature"),
    }
    return read_sides("a log of Bedrock", _asked(given), _answered(answered), known, without(log, "input", "output"))


def _logged(record: JsonObject) -> JsonObject:
    """Return the log that an event of CloudWatch holds; a log itself as it is."""
    return record if "schemaType" in record else object_of(record.get("message")) or object_of(record.get("@message"))


def _asked(body: JsonObject) -> Any:
    if "messages" in body:
        return without(body, "toolConfig", "inferenceConfig")
    return next((body[name] for name in _PROMPTS if isinstance(body.get(name), str)), None)


def _answered(body: Any) -> JsonObject | None:
    """Return the response in a body; of a stream, what its events say together."""
    events = objects_of(body)
    if any(event.get("type") == "message_start" for event in events):
        return _streamed(events)
    parts = events or objects_of(object_of(body).get("results")) or objects_of(object_of(body).get("outputs")) or [object_of(body)]
    whole = parts[-1]
    reason = next((said for name in _REASONS if (said := text_of(whole.get(name)) or text_of(object_of(body).get(name)))), None)
    ended = {"finish_reason": reason} if reason else {}
    if message := object_of(object_of(whole.get("output")).get("message")):
        return {"choices": [{"message": message} | ended]}
    texts = [text for part in parts for name in _TEXTS if (text := text_of(part.get(name)))]
    return {"choices": [{"message": {"content": "".join(texts)}} | ended]} if texts else whole or None


def _streamed(events: list[JsonObject]) -> JsonObject:
    """Return the message that the events of a stream of Anthropic's make."""
    blocks: dict[Any, dict[str, list[str]]] = {}
    made: dict[Any, JsonObject] = {}
    reason = None
    for event in events:
        place, delta = event.get("index"), object_of(event.get("delta"))
        if event.get("type") == "content_block_start":
            made[place] = object_of(event.get("content_block"))
        elif (name := _GROWING.get(str(delta.get("type")))) and isinstance(delta.get(name), str):
            blocks.setdefault(place, {}).setdefault(name, []).append(delta[name])
        reason = text_of(delta.get("stop_reason")) or reason
    grown = {place: {name: "".join(texts) for name, texts in fields.items()} for place, fields in blocks.items()}
    return {"content": [block | grown.get(place, {}) for place, block in made.items()], "stop_reason": reason}


def _tool(one: JsonObject) -> JsonObject:
    """Return a tool of the Converse API in the form of the chat API."""
    spec = object_of(one.get("toolSpec"))
    function = {"name": spec.get("name"), "description": spec.get("description") or ""}
    return {"type": "function", "function": function | {"parameters": object_of(spec.get("inputSchema")).get("json") or {}}}
