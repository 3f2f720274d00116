"""Read logged calls of OpenAI's Responses API: input items and output items.

    {"request": {"input": [...], "instructions": ..., "tools": ...}, "response": {"output": [...]}}    or all of it side by side
    {"input": [...]} or {"items": [...]}                                                               a whole conversation

Reasoning, text and calls in a row are one message. The input is context; the output is the turn. Items without a call around them,
as the Agents SDK keeps them, are read as a transcript (hermes.py).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from typing import Any

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.data.importers.fields import as_list
from clawpipe.data.importers.formats.chat import read_chat
from clawpipe.data.importers.record import Conversation
from clawpipe.data.importers.strict_json import RefusedError

_CALL, _OUTPUT = "_call", "_call_output"
_REPLIES = ("reasoning", "function_call", "custom_tool_call", "tool_search_call")
_SERVED = ("web_search_call", "file_search_call", "code_interpreter_call")  # which the server answers before the model goes on
_RESULTS = ("results", "outputs")
_BESIDE = ("compaction", "mcp_list_tools", "mcp_approval_request", "mcp_approval_response")  # items that nobody says
_ELSEWHERE = "item_reference"
GOES_ON = "a response that goes on with one that only the server has"
_KEPT_THERE = ("previous_response_id", "conversation")  # fields of a call whose input lacks what was said before


def is_responses(record: JsonObject) -> bool:
    request, response = (_part(record, name) for name in ("request", "response"))
    output, given = response.get("output", record.get("output")), request.get("input", record.get("input"))
    return isinstance(given, str | list) and isinstance(output, list) and all(_is_item(item) for item in output)


def is_conversation(record: JsonObject) -> bool:
    """Whether a record holds the items of a whole conversation, whose last one is the model's or the result of its call."""
    items = _items(record)
    return bool(items) and "output" not in record and all(_is_item(one) or "role" in one for one in items) and _ends(items[-1])


def _items(record: JsonObject) -> list[JsonObject]:
    found = record.get("input", record.get("items"))
    return found if isinstance(found, list) and all(isinstance(one, dict) for one in found) else []


def _ends(item: JsonObject) -> bool:
    return item.get("role") == "assistant" or (is_item(item) and "role" not in item)


def read_conversation(record: JsonObject) -> list[Conversation]:
    """Read a record with the items of a whole conversation.

    Raises:
        RefusedError: they are not a conversation.
    """
    rest = {name: value for name, value in record.items() if name not in ("input", "items", "instructions")}
    instructions = record.get("instructions")
    system = {"system": instructions} if isinstance(instructions, str | list) else {}
    return read_chat(rest | system | {"messages": list(messages_of(_items(record)))})


def is_item(record: JsonObject) -> bool:
    """Whether a record is an item without a role: a call, its result, a thought."""
    kind = record.get("type")
    return isinstance(kind, str) and (kind in (*_REPLIES, *_BESIDE, _ELSEWHERE) or kind.endswith((_CALL, _OUTPUT)))


def read_responses(record: JsonObject) -> Iterator[Conversation]:
    """Read a call by converting it to a log of the chat API.

    Raises:
        RefusedError: the record is not a conversation, or goes on with one that only the server has.
    """
    request, response = (dict(_part(record, name)) for name in ("request", "response"))
    if any(part.get(name) for part in (request, response) for name in _KEPT_THERE) or goes_on(record):
        raise RefusedError(GOES_ON)
    rest = {name: value for name, value in record.items() if name not in ("request", "response", "input", "output", "instructions")}
    given = request.get("input", record.get("input")) or []
    instructions = request.pop("instructions", None) or record.get("instructions")
    output = response.pop("output", None) or record.get("output") or []
    asked = [{"role": "user", "content": given}] if isinstance(given, str) else list(messages_of(as_list(given, "input")))
    request |= {"messages": asked, "system": instructions if isinstance(instructions, str | list) else None}
    request.pop("input", None)
    answer = list(messages_of(as_list(output, "output")))
    if not answer or answer[-1]["role"] != "assistant":
        raise RefusedError("output: no answer in it")
    choice = {"message": answer[-1]} | _end(rest | response, output)
    request["messages"] = [*asked, *answer[:-1]]
    yield from read_chat(rest | {"request": request, "response": response | {"choices": [choice]}})


def goes_on(record: JsonObject) -> bool:
    """Whether a call whose fields stand side by side goes on with one on the server; a log may have a `conversation` of its own."""
    conversation = record.get("conversation")
    named = isinstance(conversation, str) and conversation.startswith("conv_")
    return bool(record.get("previous_response_id") or named or (isinstance(conversation, dict) and conversation.get("id")))


def answer_of(response: JsonObject) -> JsonObject | None:
    """Return a response of this API as one of the chat API; None if it is none, or holds more than one message of the model."""
    output = response.get("output")
    if not isinstance(output, list) or not output or not all(map(_is_item, output)):
        return None
    answer = list(messages_of(output))
    rest = {name: value for name, value in response.items() if name != "output"}
    return rest | {"choices": [{"message": answer[0]} | _end(rest, output)]} if len(answer) == 1 else None


def _end(response: JsonObject, output: Iterable[Any]) -> JsonObject:
    """Return the finish reason of a response as the chat API has it; one whose status is null never ended."""
    details = response.get("incomplete_details")
    cut = [item for item in output if isinstance(item, dict) and item.get("status") == "incomplete"]
    if "status" in response and response["status"] != "completed":
        reason = details.get("reason") if isinstance(details, dict) else None
        return {"finish_reason": reason or response["status"]}
    return {"finish_reason": "incomplete" if cut else "stop"}


def messages_of(items: Iterable[JsonObject]) -> Iterator[JsonObject]:
    """Convert items to messages of the chat API; items of the model in a row are one message.

    Raises:
        RefusedError: an item only refers to another one.
    """
    parts: list[Any] = []
    for item in items:
        reply = _reply(item)
        if reply is not None:
            parts += reply
            continue
        if parts:
            yield {"role": "assistant", "content": parts}
            parts = []
        yield _message(item)
    if parts:
        yield {"role": "assistant", "content": parts}


def _reply(item: JsonObject) -> list[Any] | None:
    """Return the parts of an item of the model; None for any other item."""
    kind = item.get("type")
    if kind in _REPLIES:
        return [item]
    if isinstance(kind, str) and kind.endswith(_CALL):  # a tool that the server runs
        if isinstance(item.get("name"), str):
            return list(_called(item))
        return list(_served(item, kind))
    if item.get("role") == "assistant" and not item.get("tool_calls"):
        content = item.get("content")
        return list(content) if isinstance(content, list) else [content or ""]
    return None


def _served(item: JsonObject, kind: str) -> Iterator[JsonObject]:
    """Yield a call of a tool of the API, and its result if the server answered it: empty where the item does not hold it."""
    beside = ("type", "id", "call_id", "status", *_RESULTS)
    arguments = {name: value for name, value in item.items() if name not in beside}
    call_id = item.get("call_id") or item.get("id") or f"{kind}_{hashlib.sha256(repr(item).encode()).hexdigest()[:8]}"
    known = {"call_id": call_id, "arguments": item["action"] if isinstance(item.get("action"), dict) else arguments}
    yield {"type": "function_call", "name": kind.removesuffix(_CALL)} | known
    if kind in _SERVED:
        found: Any = next((item[name] for name in _RESULTS if item.get(name)), "")
        logs = [part["logs"] for part in found if isinstance(part, dict) and isinstance(part.get("logs"), str)]
        found = "\n".join(logs) if logs and len(logs) == len(found) else found
        yield {"type": "function_call_output", "call_id": call_id, "output": found, "is_error": item.get("status") == "failed"}


def _called(item: JsonObject) -> Iterator[JsonObject]:
    """Yield a call that names its function, as of an MCP server, and its result if the item holds that."""
    known = {"call_id": item.get("call_id") or item.get("id"), "name": item["name"]}
    yield {"type": "function_call", "arguments": item.get("arguments")} | known
    failed = item.get("error") is not None
    if failed or item.get("output") is not None:
        yield {"type": "function_call_output", "output": item["error" if failed else "output"], "is_error": failed} | known


def _message(item: JsonObject) -> JsonObject:
    kind = item.get("type")
    if kind == _ELSEWHERE:
        raise RefusedError("an item that refers to another one, which is not here")
    if isinstance(kind, str) and kind.endswith(_OUTPUT):
        return {"role": "tool", "content": [item | {"type": "function_call_output"}]}
    if isinstance(item.get("role"), str):
        return {name: value for name, value in item.items() if name != "type"}
    return {"role": "system", "content": [item]}


def _is_item(item: Any) -> bool:
    return isinstance(item, dict) and isinstance(item.get("type"), str)


def _part(record: JsonObject, name: str) -> JsonObject:
    value = record.get(name)
    return value if isinstance(value, dict) else {}
