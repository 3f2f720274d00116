"""Put the message of one choice together, from a whole answer or from the deltas of a stream."""

from __future__ import annotations

from typing import Any

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.data.wire.dialects.calls import Call, Calls, Fragment, UnheldError
from clawpipe.data.wire.texts import GrowingText


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
        return {name: _written(value) for name, value in self._fields.items()} | calls | function

    def _is_whole(self, message: JsonObject) -> bool:
        """Whether a message is all of the answer: the first of a choice, or one that says again what came in deltas."""
        said, before = message.get("content"), _written(self._fields.get("content"))
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
        """Return a field with what a delta adds to it: in a form that grows, since there may be millions of deltas."""
        before = self._fields.get(name)
        if before is None or name == "role":
            return value
        if name == "audio":
            raise UnheldError("sound that comes in fragments")
        if isinstance(before, str | GrowingText) and isinstance(value, str):
            grown: GrowingText | _Parts = GrowingText(before) if isinstance(before, str) else before
            grown.add(value)
        elif name == "content" or (isinstance(before, list | _Parts) and isinstance(value, list)):
            grown = before if isinstance(before, _Parts) else _Parts(_parts(_written(before)), joins=name == "content")
            grown.add(_parts(value))
        else:
            return value
        return grown


class _Parts:
    """A list of parts that grows; `joins`: texts that follow each other are one."""

    def __init__(self, parts: list[Any], *, joins: bool) -> None:
        self._listed, self._joins = list[Any](), joins
        self.add(parts)

    def add(self, parts: list[Any]) -> None:
        for part in parts:
            if not (self._joins and _is_text(part)):
                self._listed.append(part)
                continue
            if not (self._listed and isinstance(self._listed[-1], GrowingText)):
                self._listed.append(GrowingText())
            self._listed[-1].add(part["text"])

    def written(self) -> list[Any]:
        return [{"type": "text", "text": str(part)} if isinstance(part, GrowingText) else part for part in self._listed]


def _written(value: Any) -> Any:
    """Return a field as a whole answer has it."""
    return value.written() if isinstance(value, _Parts) else str(value) if isinstance(value, GrowingText) else value


def _numberless(call: Any) -> JsonObject:
    """Return a call of a whole answer without its index. Raises UnheldError if it is no object or has no name."""
    if not Fragment.of(call).name and not (isinstance(call.get("name"), str) and call["name"]):
        raise UnheldError("a call without a name")
    return {name: value for name, value in call.items() if name != "index"}


def _parts(content: Any) -> list[Any]:
    if isinstance(content, str):
        return [{"type": "text", "text": content}] if content else []
    return content if isinstance(content, list) else [content]


def _is_text(part: Any) -> bool:
    return isinstance(part, dict) and part.keys() == {"type", "text"} and part["type"] == "text" and isinstance(part["text"], str)
