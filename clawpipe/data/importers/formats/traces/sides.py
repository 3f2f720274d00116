"""Calls of a model in foreign records: the two sides of a call, what was asked and what was answered, as a log of the chat API.

Programs that watch models keep what a client sent and what it got back, in whatever form the library of the client had: messages of
the chat API, of LangChain, a text, a response with choices, a list with one message, items of the Responses API.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.data.importers.formats.chat import read_chat
from clawpipe.data.importers.formats.frameworks.langchain import is_message, message_of
from clawpipe.data.importers.formats.responses import GOES_ON, answer_of, goes_on, is_item, messages_of
from clawpipe.data.importers.record import Conversation
from clawpipe.data.importers.strict_json import RefusedError
from clawpipe.data.importers.values import object_of, unspelled, without
from clawpipe.data.wire.marked import marked_dialogue
from clawpipe.data.wire.thoughts import spoken

_BLANKED = ("redacted-by-litellm", "__REDACTED__")  # what LiteLLM and OpenInference write where texts are not to be logged
_SAYS = ("role", "content", "tool_calls", "choices", "message", "candidates")
_INNER = ("messages", "input", "prompt", "question", "inputs")  # fields of a request with what was asked
_OUTER = ("output", "outputs", "answer", "response", "text", "completion", "result", "content")  # fields with what was answered


def asked_of(given: Any) -> JsonObject | None:
    """Return a request with the messages of an input: a text, a list, or an object with them, perhaps as a JSON text."""
    value = unspelled(given)
    if isinstance(value, str) and value:
        return {"messages": [{"role": role, "content": words} for role, words in marked_dialogue(value) or [("user", value)]]}
    if isinstance(value, dict):
        return _request_in(value)
    listed = value[0] if isinstance(value, list) and len(value) == 1 and isinstance(value[0], list) else value
    messages = [_message(part) for part in _spoken(listed)] if isinstance(listed, list) else []
    return {"messages": messages} if messages and all(messages) else None


def _request_in(value: JsonObject) -> JsonObject | None:
    """Return an object with the messages of a request; None if it holds none."""
    if isinstance(value.get("contents"), list):
        return value
    found = next((asked for name in _INNER if name in value and (asked := asked_of(value[name]))), None)
    if found is None:
        return None
    system = {"system": value["instructions"]} if isinstance(value.get("instructions"), str) else {}
    return without(value, *_INNER, *(("instructions",) if system else ())) | system | found


def answered_of(given: Any) -> JsonObject | None:
    """Return a response with the message of an output: a text, an object, or a list with one, perhaps as a JSON text."""
    value = unspelled(given)
    if isinstance(value, list) and (response := answer_of({"output": value})):
        return response
    if isinstance(value, list) and len(value) == 1:
        return {"choices": value} if "message" in object_of(value[0]) else answered_of(value[0])
    if isinstance(value, str) and value:
        return {"message": {"content": value}}
    if not isinstance(value, dict):
        return None
    if response := answer_of(value):
        return response
    if "generations" in value:
        return _generated(value["generations"])
    if message := _message(value):
        reason = {"finish_reason": message["finish_reason"]} if message.get("finish_reason") else {}
        return {"choices": [{"message": message} | reason]} if reason else {"message": message}
    if any(name in value for name in _SAYS):
        return value
    messages = value.get("messages")
    if isinstance(messages, list) and messages:
        return answered_of(messages[-1])
    inner = [value[name] for name in _OUTER if name in value]
    return answered_of(inner[0]) if inner else None


def _spoken(listed: list[Any]) -> list[Any]:
    """Return the messages of a list; where it holds items of the Responses API, those that they are of."""
    is_items = all(isinstance(one, dict) for one in listed) and any(map(is_item, listed))
    return list(messages_of(listed)) if is_items else listed


def _message(value: Any) -> JsonObject | None:
    """Return a message in the form of the chat API; None for anything else."""
    if is_message(value):
        return message_of(value)
    part = object_of(value)
    return part if isinstance(part.get("role"), str) else None


def _generated(generations: Any) -> JsonObject | None:
    """Return LangChain's generations as a response: a list of lists, one for each prompt."""
    first = generations[0] if isinstance(generations, list) and generations else None
    listed = first if isinstance(first, list) else generations if isinstance(generations, list) else []
    choices = [_choice(object_of(one)) for one in listed]
    return {"choices": choices} if choices and all("message" in choice for choice in choices) else None


def _choice(one: JsonObject) -> JsonObject:
    message = _message(one.get("message")) or ({"content": one["text"]} if isinstance(one.get("text"), str) else None)
    info = object_of(one.get("generation_info"))
    reason = info.get("finish_reason") or object_of(message).get("finish_reason")
    return ({"message": message} if message else {}) | ({"finish_reason": reason} if isinstance(reason, str) else {})


def read_sides(who: str, asked: Any, answered: Any, known: Mapping[str, Any], rest: JsonObject) -> list[Conversation]:
    """Read a call as a log of a request and its response.

    Args:
        who: name of the record, for the reason of a refusal.
        known: session_id, user, model, tools and temperature, where the record says them.
        rest: all other fields of the record.

    Raises:
        RefusedError: there are no messages in its sides, or their texts were blanked.
    """
    request, response = asked_of(asked), answered_of(answered)
    if request is None or response is None:
        raise RefusedError(f"{who} without messages in its {'input' if request is None else 'output'}")
    named = {name: value for name, value in known.items() if value not in (None, "", [], {})}
    return read_log(who, named | {"request": request, "response": response} | ({"export": rest} if rest else {}))


def read_log(who: str, record: JsonObject) -> list[Conversation]:
    """Read the log of a request and its response.

    Raises:
        RefusedError: it is no conversation, goes on with one that only a server has, or its texts were blanked.
    """
    if any(goes_on(object_of(record.get(name))) for name in ("request", "response")):
        raise RefusedError(GOES_ON)
    found = read_chat(record)
    if any(spoken(message.content) in _BLANKED for conversation in found for message in conversation.messages):
        raise RefusedError(f"{who} whose texts were blanked")
    return found


def of_trace(found: list[Conversation], trace: str | None, *, wraps: bool) -> list[Conversation]:
    """Return conversations as those of a call of a trace, or of what wraps its calls: then they repeat those that are recorded."""
    return [replace(one, trace=trace, wraps=wraps) for one in found]


def read_each(parts: Iterable[JsonObject], read: Callable[[JsonObject], list[Conversation]], name: str) -> list[Conversation]:
    """Read the calls in one record; `extra` of the first conversation holds under `name` those that are refused, with the reasons.

    Raises:
        RefusedError: all are refused; with the reason of the first.
    """
    found, unread = list[Conversation](), list[JsonObject]()
    for part in parts:
        try:
            found += read(part)
        except RefusedError as error:
            unread.append(part | {"refused": str(error)})
    if not found:
        raise RefusedError(unread[0]["refused"] if unread else "no calls in it")
    return [replace(found[0], extra=dict(found[0].extra) | ({name: unread} if unread else {})), *found[1:]]
