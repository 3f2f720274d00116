"""Put the message of one choice together, from a whole answer or from the deltas of a stream."""

from __future__ import annotations

from typing import Any

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.data.wire.dialects.calls import Call, Calls, Fragment, UnheldError


class StreamedMessage:
    """The message of one choice, as far as it has come. Texts and lists grow, calls are put together, other fields are replaced."""

    def __init__(self) -> None:
        self._fields: JsonObject = {}
        self._calls: Calls | None = None
        self._function: Call | None = None  # the only call of OpenAI's older interface

    def add_choice(self, choice: JsonObject) -> None:
        """Add what a choice of an answer or of a chunk says.

        Raises:
            UnheldError: no message can hold it.
        """
        message, delta = choice.get("message"), choice.get("delta")
        if isinstance(message, dict) and message and self._is_whole(message):
            self._take(message)
        else:
            self._add(next((one for one in (message, delta) if isinstance(one, dict) and one), {}))

    def written(self) -> JsonObject:
        """Return the message without its role. Raises UnheldError if a call has no name."""
        calls = {"tool_calls": self._calls.written()} if self._calls else {}
        function = {"function_call": self._function.function()} if self._function else {}
        return self._fields | calls | function

    def _is_whole(self, message: JsonObject) -> bool:
        """Whether a message is all of the answer: the first of a choice, or one that says again what came in deltas."""
        said, before = message.get("content"), self._fields.get("content")
        return not (self._fields or self._calls or self._function) or (
            isinstance(said, str) and isinstance(before, str) and bool(before) and said.startswith(before)
        )

    def _take(self, message: JsonObject) -> None:
        self._fields = {name: value for name, value in message.items() if name != "tool_calls" or not isinstance(value, list)}
        self._calls = self._function = None
        if isinstance(calls := message.get("tool_calls"), list) and calls:
            self._fields["tool_calls"] = [_numberless(call) for call in calls]
        if isinstance(function := message.get("function_call"), dict):
            _numberless({"function": function})

    def _add(self, delta: JsonObject) -> None:
        for name, value in delta.items():
            if name == "tool_calls" and isinstance(value, list):
                self._add_calls(value)
            elif name == "function_call" and isinstance(value, dict):
                self._function = self._function or Call()
                self._function.take(Fragment.of({"function": value}))
            elif value is not None or name not in self._fields:
                self._fields[name] = self._joined(name, value)

    def _add_calls(self, fragments: list[Any]) -> None:
        if fragments:
            self._calls = self._calls or Calls()
            self._calls.add(fragments)

    def _joined(self, name: str, value: Any) -> Any:
        """Return a field with what a delta adds to it."""
        before = self._fields.get(name)
        if before is None or name == "role":
            return value
        if name == "audio":
            raise UnheldError("sound that comes in fragments")
        if isinstance(before, str) and isinstance(value, str):
            return before + value
        if name == "content":
            return _joined_parts([*_parts(before), *_parts(value)])
        if isinstance(before, list) and isinstance(value, list):
            return [*before, *value]
        return value


def _numberless(call: Any) -> JsonObject:
    """Return a call of a whole answer without its index. Raises UnheldError if it is no object or has no name."""
    if not Fragment.of(call).name and not (isinstance(call.get("name"), str) and call["name"]):
        raise UnheldError("a call without a name")
    return {name: value for name, value in call.items() if name != "index"}


def _parts(content: Any) -> list[Any]:
    if isinstance(content, str):
        return [{"type": "text", "text": content}] if content else []
    return content if isinstance(content, list) else [content]


def _joined_parts(parts: list[Any]) -> list[Any]:
    """Return parts of which texts that follow each other are one."""
    joined: list[Any] = []
    for part in parts:
        if joined and _is_text(part) and _is_text(joined[-1]):
            joined[-1] = part | {"text": joined[-1]["text"] + part["text"]}
        else:
            joined.append(part)
    return joined


def _is_text(part: Any) -> bool:
    return isinstance(part, dict) and part.keys() == {"type", "text"} and part["type"] == "text" and isinstance(part["text"], str)
