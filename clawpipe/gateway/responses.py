"""Requests and answers of `/v1/responses`, as those of a chat.

A response's input and output are items. Items of the assistant that follow each other are one message: its text, its thoughts and
its calls. What has no place in a chat (hosted tools, state that only the engine knows) is not captured.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import orjson

from clawpipe.capture.records import Answer
from clawpipe.gateway.answers import Collected
from clawpipe.json_types import JsonObject
from clawpipe.serving.errors import ApiError
from clawpipe.wire.texts import joined_texts

History = Callable[[str], list[JsonObject] | None]  # the conversation up to and with a response, by the response's id
_STATE = ("conversation", "prompt", "background")  # fields that name what only the engine knows
_TEXTS = ("input_text", "output_text", "text", "summary_text", "reasoning_text")
_ROLES = ("system", "developer", "user", "assistant")
_MOST_BYTES = 64 << 20  # of conversations that are kept for `previous_response_id`
_LAST = ("response.completed", "response.incomplete", "response.failed", "response.cancelled", "error")
_FAILED = ("failed", "cancelled")


class UncapturedError(Exception):
    """A request that cannot be recorded as a chat. `args[0]` says why, in one of a few wordings."""


def chat_of_request(body: JsonObject, history: History) -> JsonObject:
    """Return a request as a chat's.

    Args:
        body: the request.
        history: finds the conversation that `previous_response_id` goes on with.

    Raises:
        ApiError: 400, it has no input.
        UncapturedError: it holds what a chat cannot.
    """
    given = body.get("input")
    if not isinstance(given, str | list) or not given:
        raise ApiError(400, "input: neither a text nor a list of items", "input", "invalid_value")
    if any(body.get(name) for name in _STATE):
        raise UncapturedError("state that only the engine knows")
    messages = messages_of([{"role": "user", "content": given}] if isinstance(given, str) else given)
    if previous := body.get("previous_response_id"):
        earlier = history(previous) if isinstance(previous, str) else None
        if earlier is None:
            raise UncapturedError("a previous response that was not captured here")
        messages = [*earlier, *messages]
    instructions = body.get("instructions")
    system = [{"role": "system", "content": instructions}] if isinstance(instructions, str) and instructions else []
    left = {name: value for name, value in body.items() if name not in ("input", "instructions", "tools")}
    listed = body.get("tools") or []
    tools = [_tool(one) for one in (listed if isinstance(listed, list) else [listed])]
    return left | {"messages": [*system, *messages]} | ({"tools": tools} if tools else {})


def conversation(messages: Sequence[JsonObject], answer: JsonObject) -> list[JsonObject]:
    """Return what the next request goes on with: all but the instructions, which each request says anew, and the answer."""
    return [*messages[int(messages[0].get("role") == "system") :], answer]


def messages_of(items: Iterable[Any]) -> list[JsonObject]:
    """Return items as messages. Raises UncapturedError if one has no place in a chat."""
    found: list[JsonObject] = []
    for item in items:
        if not isinstance(item, dict):
            raise UncapturedError("an item that is no object")
        message = _message(item)
        if message["role"] == "assistant" and found and found[-1]["role"] == "assistant":
            _join(found[-1], message)
        else:
            found.append(message)
    return found


def _message(item: JsonObject) -> JsonObject:
    match item.get("type", "message"):
        case "message" if item.get("role") in _ROLES:
            return {"role": item["role"], "content": _content(item.get("content"), item["role"])}
        case "function_call":
            function = {"name": item.get("name"), "arguments": item.get("arguments")}
            return {"role": "assistant", "tool_calls": [{"id": item.get("call_id"), "type": "function", "function": function}]}
        case "function_call_output":
            return {"role": "tool", "tool_call_id": item.get("call_id"), "content": _content(item.get("output"), "tool")}
        case "reasoning":
            thoughts = _content(item.get("content") or item.get("summary") or "", "reasoning")
            return {"role": "assistant", "reasoning_content": thoughts} if thoughts else {"role": "assistant"}
        case _:
            raise UncapturedError("an item that no chat has")


def _content(content: Any, role: str) -> str:
    """Return the text of parts. Raises UncapturedError if one is no text."""
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    kinds = {str(part.get("type")) if isinstance(part, dict) else "" for part in parts}
    if kinds <= {*_TEXTS, "refusal"}:
        return joined_texts(role, [str(part.get("text") or part.get("refusal") or "") for part in parts])
    raise UncapturedError("a part that is no text")


def _join(message: JsonObject, more: JsonObject) -> None:
    for name in ("content", "reasoning_content"):
        if name in more:
            message[name] = (message.get(name) or "") + more[name]
    if "tool_calls" in more:
        message["tool_calls"] = [*message.get("tool_calls", ()), *more["tool_calls"]]


def _tool(tool: Any) -> JsonObject:
    if not isinstance(tool, dict) or tool.get("type") != "function":
        raise UncapturedError("a tool that the engine runs")
    return {"type": "function", "function": {name: value for name, value in tool.items() if name != "type" and value is not None}}


class CollectedResponse(Collected):
    """The answer of one response, whole or as its events come.

    Attributes:
        over: whether the last event has come.
    """

    def __init__(self) -> None:
        super().__init__()
        self._items: dict[int, JsonObject] = {}
        self._reason: str | None = None

    def add(self, body: JsonObject) -> None:
        """Add a whole response or one event."""
        kind, response = body.get("type"), body.get("response")
        self.over = self.over or kind in _LAST
        self.failed = self.failed or kind == "error" or bool(body.get("error"))
        if isinstance(response, dict):
            self._add_response(response, kind in _LAST)
        elif isinstance(kind, str):
            self._add_part(kind, body)
        else:
            self._add_response(body, is_last=True)

    def _add_response(self, body: JsonObject, is_last: bool) -> None:
        self.response_id = body["id"] if isinstance(body.get("id"), str) else self.response_id
        self.model = body["model"] if isinstance(body.get("model"), str) else self.model
        self.failed = self.failed or body.get("status") in _FAILED or bool(body.get("error"))
        if is_last:
            output = body.get("output")
            self._items = dict(enumerate(output if isinstance(output, list) else [])) or self._items
            self._finish(body)

    def _add_part(self, kind: str, event: JsonObject) -> None:
        """Add a part of an item, for the case that the last event never comes."""
        place, item, delta = event.get("output_index"), event.get("item"), event.get("delta")
        if not isinstance(place, int):
            return
        if isinstance(item, dict):
            self._items[place] = {**item}
        elif isinstance(delta, str) and (one := self._items.get(place)) is not None:
            if kind == "response.output_text.delta":
                one["content"] = _quiet_content(one.get("content")) + delta
            elif kind == "response.function_call_arguments.delta":
                one["arguments"] = str(one.get("arguments") or "") + delta

    def _finish(self, response: JsonObject) -> None:
        given = response.get("usage")
        usage = given if isinstance(given, dict) else {}
        self.usage = {
            name: usage[own]
            for name, own in (("prompt_tokens", "input_tokens"), ("completion_tokens", "output_tokens"), ("total_tokens",) * 2)
            if own in usage
        } or None
        self._reason = self._reason_of(response)

    def _reason_of(self, response: JsonObject) -> str | None:
        """Return the finish reason that a chat would have; None if the response did not finish."""
        status, details = response.get("status", "completed"), response.get("incomplete_details")
        if status == "incomplete":
            filtered = isinstance(details, dict) and details.get("reason") == "content_filter"
            return "content_filter" if filtered else "length"
        calls = any(isinstance(one, dict) and one.get("type") == "function_call" for one in self._items.values())
        return ("tool_calls" if calls else "stop") if status == "completed" else None

    @property
    def is_empty(self) -> bool:
        return not self._messages()

    @property
    def reasons(self) -> list[str | None]:
        """The finish reason of the one answer; None if it did not come."""
        return [self._reason]

    def uncaptured(self) -> str | None:
        """Return why there is nothing to record, or no record can hold it; None if one can."""
        try:
            messages_of(item for _, item in sorted(self._items.items()))
        except UncapturedError as error:
            return str(error)
        return super().uncaptured()

    def answers(self, with_tokens: bool) -> list[Answer]:
        """Return the one answer."""
        [message] = self._messages()
        return [Answer({"content": ""} | message, self._reason)]

    def _messages(self) -> list[JsonObject]:
        """Return the answer's message; none if it holds what a chat cannot."""
        try:
            messages = messages_of(item for _, item in sorted(self._items.items()))
        except UncapturedError:
            return []
        replies = [one for one in messages if one["role"] == "assistant" and one.keys() - {"role"}]
        return replies if len(messages) == 1 else []


def _quiet_content(content: Any) -> str:
    try:
        return _content(content or "", "assistant")
    except UncapturedError:
        return ""


class Conversations:
    """Conversations by key and response, for requests that name the response before; the oldest go first."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, str], bytes] = {}
        self._bytes = 0

    def of(self, key: str) -> History:
        """Return what finds the conversations of a key's responses."""
        return lambda response: orjson.loads(found) if (found := self._found.get((key, response))) else None

    def keep(self, key: str, response: str, messages: list[JsonObject]) -> None:
        """Keep a conversation."""
        data = orjson.dumps(messages)
        self._bytes += len(data) - len(self._found.pop((key, response), b""))
        self._found[key, response] = data
        while self._bytes > _MOST_BYTES:
            self._bytes -= len(self._found.pop(next(iter(self._found))))
