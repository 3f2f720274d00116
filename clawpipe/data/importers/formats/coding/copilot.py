"""Read chats of GitHub Copilot: what VS Code exports (`chat.json`), and sessions of the CLI (`events.jsonl`).

    {"responderUsername", "requests": [{"message": {"text"}, "response": [parts], "result": {"metadata": {"toolCallRounds"}}}]}
    {"type": "user.message" | "assistant.message" | "tool.execution_complete" | ..., "data": {...}, "timestamp"}

Where VS Code kept the rounds of a request, they are read, else the parts that it displayed: among them references to files, which
stand in the middle of sentences, and calls of tools, some of them without their arguments, which are context. A request that was
cancelled is cut.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.data.importers.formats.chats.tree import THUMB, read_export
from clawpipe.data.importers.record import Conversation
from clawpipe.data.importers.turns import Turns
from clawpipe.data.importers.values import name_of, object_of, objects_of, text_of, without

_SAID = ("markdownContent", "markdownVuln", None)  # kinds of parts that are text
_EVENTS = ("session.", "user.", "assistant.", "tool.", "system.")


def is_copilot(record: JsonObject) -> bool:
    return isinstance(record.get("requests"), list) and ("responderUsername" in record or "initialLocation" in record)


def read_copilot(record: JsonObject) -> list[Conversation]:
    """Read a chat.

    Raises:
        RefusedError: it is not a conversation.
    """
    turns, requests = Turns(), objects_of(record["requests"])
    for request in requests:
        turns.say("user", _text(object_of(request.get("message"))))
        metadata = object_of(object_of(request.get("result")).get("metadata"))
        rounds = objects_of(metadata.get("toolCallRounds"))
        if rounds:
            _add_rounds(turns, rounds, object_of(metadata.get("toolCallResults")))
        else:
            _add_parts(turns, request.get("response"))
        _end(turns, request)
    models = [model for request in requests if (model := text_of(request.get("modelId")))]
    known = {"session_id": name_of(record, "sessionId"), "model": models[0] if models else None}
    return read_export(turns, known, without(record, "requests", "sessionId"))


def _end(turns: Turns, request: JsonObject) -> None:
    if request.get("isCanceled") is True:
        turns.mark(finish_reason="cancelled")
    elif object_of(request.get("result")).get("errorDetails"):
        turns.mark(finish_reason="error")
    if request.get("vote") in (0, 1):
        turns.mark(**{THUMB: request["vote"] == 1})


def _text(message: JsonObject) -> str:
    return text_of(message.get("text")) or "".join(
        text for part in objects_of(message.get("parts")) if (text := text_of(part.get("text")))
    )


def _add_rounds(turns: Turns, rounds: list[JsonObject], results: JsonObject) -> None:
    for one in rounds:
        turns.close()
        turns.think(object_of(one.get("thinking")).get("text"))
        turns.say("assistant", text_of(one.get("response")) or "")
        calls = objects_of(one.get("toolCalls"))
        for call in calls:
            turns.call(call.get("name"), call.get("arguments"), call.get("id"))
        for call in calls:
            answer = object_of(results.get(str(call.get("id"))))
            if answer:
                turns.answer(_answered(answer), call.get("id"), call.get("name"))


def _answered(answer: JsonObject) -> Any:
    texts = [part["value"] for part in objects_of(answer.get("content")) if isinstance(part.get("value"), str)]
    return "\n".join(texts) if texts else answer.get("content") or ""


def _add_parts(turns: Turns, response: Any) -> None:
    for part in objects_of(response):
        kind = part.get("kind")
        said = part.get("value", part.get("content"))
        text = text_of(said) or text_of(object_of(said).get("value"))
        if kind == "thinking":
            turns.think(text)
        elif kind in _SAID and text:
            turns.say("assistant", text)
        elif kind == "inlineReference":
            turns.say("assistant", _displayed(part))
        elif kind == "toolInvocationSerialized":
            arguments = _arguments(part)
            turns.call(part.get("toolId"), {} if arguments is None else arguments, part.get("toolCallId"))
            if arguments is None:  # to call a tool without them is nothing to learn
                turns.mark(weight=0)
            turns.answer(object_of(part.get("resultDetails")).get("output") or "", part.get("toolCallId"))


def _displayed(part: JsonObject) -> str:
    """Return the words that a reference to a file, a place in one or a symbol stood for in its sentence."""
    reference = object_of(part.get("inlineReference"))
    place = object_of(reference.get("location")) or reference
    address = place.get("uri", place)
    path = address if isinstance(address, str) else text_of(object_of(address).get("path"))
    return text_of(part.get("name")) or text_of(reference.get("name")) or (path or "").rstrip("/").rpartition("/")[2]


def _arguments(part: JsonObject) -> Any:
    """Return what a call that was displayed was given; None where the export does not say."""
    shown = object_of(part.get("toolSpecificData"))
    command = text_of(shown.get("command")) or text_of(object_of(shown.get("commandLine")).get("original"))
    return object_of(part.get("resultDetails")).get("input") or shown.get("rawInput") or ({"command": command} if command else None)


def is_copilot_cli(record: JsonObject) -> bool:
    kind = record.get("type")
    named = isinstance(kind, str) and (kind.startswith(_EVENTS) or "parentId" in record)
    return named and isinstance(record.get("data"), dict) and "timestamp" in record


def join_copilot_cli(records: Sequence[JsonObject], session: str) -> Iterator[Conversation]:
    """Yield the conversation of a session's file.

    Raises:
        RefusedError: it is not a conversation.
    """
    turns, started = Turns(), JsonObject()
    for record in records:
        kind, data = record["type"], record["data"]
        if kind == "session.start":
            started = data
        elif kind in ("user.message", "system.message"):
            turns.say(kind.partition(".")[0], text_of(data.get("content")) or "")
        elif kind == "assistant.message":
            _add_message(turns, data)
        elif kind == "tool.execution_complete":
            _add_result(turns, data)
        elif kind in ("session.error", "abort", "assistant.abort"):
            turns.mark(finish_reason="error")
    model = text_of(started.get("selectedModel")) or text_of(started.get("model"))
    known = {"session_id": text_of(started.get("sessionId")) or session, "model": model}
    yield from read_export(turns, known, without(started, "sessionId"))


def _add_message(turns: Turns, data: JsonObject) -> None:
    turns.close()
    turns.think(data.get("reasoningText"))
    turns.say("assistant", text_of(data.get("content")) or "")
    for call in objects_of(data.get("toolRequests")):
        turns.call(call.get("name"), call.get("arguments") or {}, call.get("toolCallId"))


def _add_result(turns: Turns, data: JsonObject) -> None:
    result, success = data.get("result"), data.get("success")
    said = object_of(result).get("content", result) if result is not None else object_of(data.get("error")).get("message")
    turns.answer(said or "", data.get("toolCallId"), failed=not success if isinstance(success, bool) else None)
