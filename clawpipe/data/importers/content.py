"""Read the parts of a message's content: text, thoughts, tool calls and tool results, in the forms of the common APIs.

    {"type": "text", "text": ...}                         OpenAI, Anthropic, AI SDK; LLaMA-Factory says `value`
    {"type": "tool_use", "id", "name", "input"}           Anthropic; AI SDK: tool-call; OpenAI Responses: function_call
    {"type": "tool_result", "tool_use_id", "content"}     Anthropic; AI SDK: tool-result; OpenTelemetry: tool_call_response
    {"type": "tool-invocation", "toolInvocation": ...}    Vercel: a call with its answer; later tool-NAME and dynamic-tool
    {"functionCall": {...}}, {"toolUse": {...}}           Gemini and Bedrock, where a part's only field says what it is
    {"type": "toolRequest", "toolCall": {"value": ...}}   Goose, and others that keep MCP's calls and results (`toolResult`)

The text holds a placeholder for any other part: `[kind: address]`, or the sha256 of inline content. That part is kept whole, and so
are further fields of known parts, such as a thought's signature or a text's citations.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.core.conversation.messages import Message, ToolCall
from clawpipe.data.importers.fields import Fields
from clawpipe.data.importers.part_kinds import kind_of
from clawpipe.data.wire.arguments import ARGUMENTS, custom_call, named_call, parsed, tool_call
from clawpipe.data.wire.failures import mark_of
from clawpipe.data.wire.texts import joined_texts

_REFERENCES = ("url", "file_id", "path", "id", "uri", "fileUri")
_TEXTS = ("text", "value", "content", "refusal")
_THOUGHTS = ("thinking", "reasoning", "text", "value", "content", "reasoningText", "summary", "thought")
_IDS = ("toolCallId", "call_id", "toolUseId", "id")
_ARGUMENTS = (*ARGUMENTS, "partial_json")  # the last of a call that was streamed, beside an empty `input`
_ANSWERED = ("tool_use_id", "tool_call_id", *_IDS)
_ANSWERS = ("output", "result", "response", "content", "value", "errorText")
_NAMES = ("toolName", "name")


@dataclass
class Step:
    """One reply with the tool results that follow it.

    Attributes:
        failed: whether an answer is marked as a failure, by its index, where its part says either.
        shown: indices of answers with a placeholder for a part that is no text.
        unread: parts of unknown kinds, whole; each has a placeholder in `texts`.
        beside: further fields of known parts, with the part's number under `part`.
    """

    texts: list[str] = field(default_factory=list)
    thoughts: list[str] = field(default_factory=list)
    calls: list[ToolCall] = field(default_factory=list)
    answers: list[Message] = field(default_factory=list)
    failed: dict[int, bool] = field(default_factory=dict)
    shown: set[int] = field(default_factory=set)
    unread: list[JsonObject] = field(default_factory=list)
    beside: list[JsonObject] = field(default_factory=list)


def read_parts(parts: Iterable[Any], number: int, *, speaks: bool) -> list[Step]:
    """Return the steps of a message: one, unless the message goes on after a tool result.

    Args:
        parts: objects or texts.
        number: index of the message, which makes the ids of unnamed calls unique.
        speaks: whether the message is the assistant's; calls of other roles are not read.
    """
    reader = _Parts(number, speaks)
    for place, part in enumerate(parts):
        reader.add(part, place)
    return reader.steps


class _Parts:
    """Sorts parts into steps. The reader of a kind takes its fields and returns whether it understood them."""

    def __init__(self, number: int, speaks: bool) -> None:
        self.steps = [Step()]
        self._number, self._speaks, self._calls = number, speaks, 0

    def add(self, part: Any, place: int) -> None:
        kind, given = kind_of(part)
        fields = Fields(given)
        if kind in ("step-start", "step_start"):
            self._next_step(after_answers=True)
            return
        reader = _READERS.get(kind) or (_invocation if kind.startswith("tool-") else _answer if kind.endswith("_result") else None)
        if reader is None or not reader(self, fields, kind):
            self._unread(part, kind)
        elif rest := {name: value for name, value in fields.rest.items() if value not in ("", [], {})}:
            self.steps[-1].beside.append({"part": place, "type": kind} | rest)

    def speaks_on(self) -> Step:
        """Return the step for the next text: a new one if the assistant goes on after a tool result."""
        self._next_step(after_answers=self._speaks)
        return self.steps[-1]

    def call(self, name: Any, arguments: Any, call_id: str | None, kind: str = "") -> ToolCall:
        make = custom_call if kind == "custom_tool_call" else tool_call
        unnamed = self._next_id()
        return make(name, arguments, call_id or unnamed)

    def spelled(self, call: JsonObject) -> ToolCall:
        return named_call(call, self._next_id())

    @property
    def may_call(self) -> bool:
        return self._speaks

    def _next_id(self) -> str:
        self._calls += 1
        return f"call_{self._number}_{self._calls - 1}"

    def _next_step(self, *, after_answers: bool) -> None:
        if after_answers and self.steps[-1].answers:
            self.steps.append(Step())

    def _unread(self, part: Any, kind: str) -> None:
        step = self.speaks_on()
        step.texts.append(placeholder(part, kind))
        step.unread.append(part if isinstance(part, dict) else {"value": part})


def placeholder(part: Any, kind: str) -> str:
    """Return the placeholder for a part that is not text: its address, or the digest of its inline content."""
    content = part.get(kind, part.get("source", part)) if isinstance(part, dict) else part
    found = [content[name] for name in _REFERENCES if content.get(name)] if isinstance(content, dict) else [content]
    return f"[{kind}: {_reference(found[0] if found else content)}]"


def _reference(content: Any) -> str:
    if isinstance(content, str) and not content.startswith("data:"):
        return content
    inline = content if isinstance(content, str) else json.dumps(content, ensure_ascii=False, sort_keys=True)
    return f"sha256:{hashlib.sha256(inline.encode()).hexdigest()}"


def answer_text(value: Any) -> str:
    """Return the text of a tool result: the string itself, the texts of its parts, or JSON."""
    if isinstance(value, str):
        return value
    if isinstance(value, list) and value and all(isinstance(part, dict) and "type" in part for part in value):
        return joined_texts("tool", map(_part_text, value))
    if isinstance(value, dict) and value.keys() <= {"type", "value"} and isinstance(value.get("type"), str):
        return answer_text(value.get("value", ""))
    return json.dumps(value, ensure_ascii=False)


def _part_text(part: JsonObject) -> str:
    text = _text(Fields(part), _TEXTS)
    return placeholder(part, str(part["type"])) if text is None else text


def _text(fields: Fields, names: Iterable[str]) -> str | None:
    """Take the text of the first of these fields that holds a text, or parts with texts."""
    for name in names:
        value = fields.peek(name)
        if isinstance(value, str):
            return fields.take(name, str)
        parts = [part for part in (value if isinstance(value, list) else [value]) if isinstance(part, dict)]
        texts = [part["text"] for part in parts if isinstance(part.get("text"), str)]
        if texts:
            if all(part.keys() <= {"type", "text"} for part in parts):  # further fields of the parts stay
                fields.take(name, list, dict)
            return "\n".join(texts)
    return None


def _first(fields: Fields, names: Iterable[str]) -> Any:
    """Take the value of the first of these fields that is present."""
    name = next((name for name in names if fields.peek(name) is not None), None)
    return fields.take(name, object, bool) if name else None


def _name(fields: Fields, names: Iterable[str]) -> str | None:
    found = next((name for name in names if isinstance(fields.peek(name), str)), None)
    return fields.take(found, str) if found else None


def _speech(parts: _Parts, fields: Fields, kind: str) -> bool:
    text = _text(fields, _TEXTS)
    if text is None:
        return False
    parts.speaks_on().texts.append(text)
    return True


def _thought(parts: _Parts, fields: Fields, kind: str) -> bool:
    text = _text(fields, _THOUGHTS)
    if text is None and not (fields.peek("summary") == [] or fields.peek("encrypted_content")):
        return False
    if text:
        parts.speaks_on().thoughts.append(text)
    return True


def _silent(parts: _Parts, fields: Fields, kind: str) -> bool:
    """Accept a part that adds no text: a hidden thought, or the source of a text."""
    return True


def _call(parts: _Parts, fields: Fields, kind: str) -> bool:
    if not parts.may_call:
        return False
    if listed := _spelled_calls(fields.peek("value")):
        fields.take("value", str)
        parts.speaks_on().calls.extend(map(parts.spelled, listed))
        return True
    name = _name(fields, _NAMES)
    if name is None:
        return False
    named = _name(fields, ("id", *_IDS) if kind == "tool_use" else _IDS)
    parts.speaks_on().calls.append(parts.call(name, _arguments(fields), named, kind))
    return True


def _spelled_calls(value: Any) -> list[JsonObject]:
    """Return the calls in a JSON text, one or a list of them; none for any other text."""
    given = parsed(value) if isinstance(value, str) else None
    listed: list[Any] = given if isinstance(given, list) else [given]
    return listed if all(isinstance(one, dict) and isinstance(one.get("name"), str) for one in listed) else []


def _arguments(fields: Fields) -> Any:
    said = [name for name in _ARGUMENTS if fields.peek(name) not in (None, "", {})]
    return _first(fields, said or _ARGUMENTS)


def _answer(parts: _Parts, fields: Fields, kind: str) -> bool:
    call_id, name = _name(fields, _ANSWERED), _name(fields, _NAMES)
    if call_id is None and name is None:
        return False
    _add_answer(parts.steps[-1], fields, call_id, name)
    return True


def _add_answer(step: Step, fields: Fields, call_id: str | None, name: str | None) -> None:
    mark = True if fields.peek("errorText") is not None else mark_of(fields.rest)
    if mark is not None:
        step.failed[len(step.answers)] = mark
    text, shows = _answered(fields)
    if shows:
        step.shown.add(len(step.answers))
    step.answers.append(Message("tool", text, (), call_id, name))


def _answered(fields: Fields) -> tuple[str, bool]:
    """Return the text of a tool result, and whether it shows something by a placeholder; all that is no text stays in `fields`."""
    name = next((name for name in _ANSWERS if fields.peek(name) is not None), None)
    if name is None:
        return "", False
    value = fields.peek(name)
    parts = [part for part in value if isinstance(part, dict)] if isinstance(value, list) else []
    others = [part for part in parts if _text(Fields(part), _TEXTS) is None]
    if not others:
        fields.take(name, object, bool)
    return answer_text(value), any("type" in part for part in others)


def _invocation(parts: _Parts, fields: Fields, kind: str) -> bool:
    """Add a call, and its result if the part holds one. Calls of one step are parallel calls."""
    name, call_id = _name(fields, _NAMES) or kind.removeprefix("tool-"), _name(fields, _IDS)
    if not parts.may_call or call_id is None:
        return False
    step = parts.steps[-1]
    step.calls.append(parts.call(name, _arguments(fields), call_id))
    if any(fields.peek(one) is not None for one in ("output", "result", "errorText")):
        _add_answer(step, fields, call_id, name)
    return True


_Reader = Callable[[_Parts, Fields, str], bool]
_READERS: dict[str, _Reader] = {
    **dict.fromkeys(("text", "input_text", "output_text", "refusal", "summary_text"), _speech),
    **dict.fromkeys(("thinking", "reasoning", "reasoning_text", "reasoningContent", "thought"), _thought),
    **dict.fromkeys(
        ("redacted_thinking", "redactedThinking", "redacted-reasoning", "source-url", "source-document", "source"), _silent
    ),
    **dict.fromkeys(("tool_use", "server_tool_use", "mcp_tool_use", "tool-call", "tool_call", "toolUse"), _call),
    **dict.fromkeys(("function_call", "functionCall", "function", "custom_tool_call", "toolCall"), _call),
    **dict.fromkeys(("tool_result", "tool-result", "toolResult", "mcp_tool_result", "tool_call_response"), _answer),
    **dict.fromkeys(("functionResponse", "function_response", "function_call_output", "custom_tool_call_output"), _answer),
    **dict.fromkeys(("tool-invocation", "dynamic-tool"), _invocation),
    **dict.fromkeys(("toolRequest", "frontendToolRequest", "tool_request", "tools/call"), _call),
    **dict.fromkeys(("toolResponse", "tool_response"), _answer),
}
