"""Read and write messages in the form of the chat API and its relatives, which several formats use."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, get_args

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.core.conversation.messages import Message, Role, ToolCall
from clawpipe.data.importers.content import Step, read_parts
from clawpipe.data.importers.fields import Fields, as_list
from clawpipe.data.importers.strict_json import Reasons, RefusedError
from clawpipe.data.wire.arguments import listed_calls, named_call, parsed
from clawpipe.data.wire.failures import UNMARKED, mark_of
from clawpipe.data.wire.texts import joined_texts
from clawpipe.data.wire.thoughts import LOGGED, with_thoughts

ROLES: dict[str, Role] = {
    **{role: role for role in get_args(Role)},
    "developer": "system",
    **dict.fromkeys(("human", "customer"), "user"),
    **dict.fromkeys(("gpt", "ai", "bot", "chatbot", "model", "agent", "chatgpt"), "assistant"),
    **dict.fromkeys(("function", "observation", "environment", "ipython", "tool_response", "tool_result"), "tool"),
}  # the names of the roles in all known formats
CALLERS = ("function_call", "tool_call")  # roles with a call as their text
_SPEAKERS = get_args(Role)
_SYSTEM = ("system", "system_prompt", "systemInstruction", "system_instruction")  # fields for a system prompt beside the messages
_WEIGHTS = ("weight", "loss_weight", "train", "training", "loss", "trainable")  # of an assistant message in a fine-tuning row


class ReadMessages(NamedTuple):
    """Messages, and the parts of the record that they do not hold.

    Attributes:
        unknown: further fields of messages, with the message's index under `message`; under `content` the parts of unknown kinds
            (`unread`, whole, each with a placeholder in the text) and further fields of known parts (`beside`).
        unread: indices of the messages with a placeholder.
        muted: indices of the messages that are not to be trained on.
        failed: whether a tool result is marked as a failure, by its index, where its record says either.
    """

    messages: tuple[Message, ...]
    unknown: list[JsonObject]
    unread: frozenset[int] = frozenset()
    muted: frozenset[int] = frozenset()
    failed: Mapping[int, bool] = UNMARKED


def read_messages(given: Iterable[Any], where: str = "messages", first: int = 0) -> ReadMessages:
    """Read a list of messages. A message with tool results becomes several.

    Args:
        first: number of the first of them, which makes the ids of unnamed calls unique.

    Raises:
        RefusedError: elements are not messages; with the reasons of all of them.
    """
    listed = list(as_list(given, where))
    reader, reasons = _Reader(where, asked=any(part.get("role") in ("user", "human") for part in listed)), Reasons()
    for number, part in enumerate(listed, first):
        with reasons:
            reader.add(part, number)
    reasons.raise_all()
    return ReadMessages(tuple(reader.messages), reader.unknown, frozenset(reader.unread), frozenset(reader.muted), reader.failed)


def are_messages(value: Any) -> bool:
    """Whether a value is a list in which each object names who spoke, in one of the two ways of writing it."""
    return isinstance(value, list) and bool(value) and all(isinstance(one, dict) and _speaks(one) for one in value)


def _speaks(one: JsonObject) -> bool:
    return any(isinstance(one.get(name), str) for name in ("role", "from"))


def read_message(part: JsonObject, number: int = 0) -> Message:
    """Read one message; of several that it becomes, the first. `number` makes the ids of unnamed calls unique.

    Raises:
        RefusedError: unknown role, or a field of another type.
    """
    reader = _Reader("messages", asked=True)
    reader.add(part, number)
    return reader.messages[0]


def write_chat(messages: Sequence[Message]) -> list[JsonObject]:
    """Return the `messages` of a row, which `read_messages` reads back."""
    return [_written(message) for message in messages]


class _Reader:
    """Reads messages one by one. Without a user role (`asked` is False), the role `environment` is the user."""

    def __init__(self, where: str, *, asked: bool) -> None:
        self.messages: list[Message] = []
        self.unknown: list[JsonObject] = []
        self.unread, self.muted, self.failed = set[int](), set[int](), dict[int, bool]()
        self._where, self._asked = where, asked
        self._calling = False  # the message before was a call with a role of its own

    def add(self, part: JsonObject, number: int) -> None:
        if len(part) == 2 and part.get("role") in _SPEAKERS and isinstance(part.get("content"), str):
            self.messages.append(Message(part["role"], part["content"]))  # most messages have these two fields only
            self._calling = False
            return
        fields = Fields(part, f"{self._where}[].")
        muted = take_muted(fields)
        speaker, before = fields.take("role", str), len(self.messages)
        if speaker in CALLERS:
            self._add_calls(fields, number)
        else:
            self._add(self._role(speaker), fields, number)
        self._calling = speaker in CALLERS
        if muted:
            self.muted.update(range(before, len(self.messages)))
        if rest := fields.rest:
            self._keep(before, rest)

    def _role(self, speaker: str) -> Role:
        if speaker == "environment" and not self._asked:
            return "user"
        if speaker not in ROLES:
            raise RefusedError(f"{self._where}[].role: not system, user, assistant or tool")
        return ROLES[speaker]

    def _add(self, role: Role, fields: Fields, number: int) -> None:
        calls = tuple(_calls(fields, number)) if role == "assistant" else ()
        steps = _steps(fields, number, speaks=role == "assistant")
        if thoughts := [thought for name in LOGGED if (thought := _thought(fields, name))]:
            steps[0].thoughts = thoughts[:1]
        name = fields.take("name", str, default=None) or fields.take("tool_name", str, default=None) if role == "tool" else None
        answered = fields.take("tool_call_id", str, default=None)
        mark = mark_of(fields.rest) if role == "tool" else None
        if mark is not None:
            self.failed[len(self.messages)] = mark
        for step in steps:
            self._add_step(role, step, calls, answered, name)
            calls = ()

    def _add_step(self, role: Role, step: Step, calls: tuple[ToolCall, ...], answered: str | None, name: str | None) -> None:
        message = Message(role, with_thoughts(joined_texts(role, step.texts), step.thoughts), (*calls, *step.calls), answered, name)
        own = [message] if message.content or message.tool_calls or not step.answers else []
        place = len(self.messages) + (len(step.answers) if own and role != "assistant" else 0)
        first = len(self.messages) + (len(own) if role == "assistant" else 0)
        self.failed.update({first + number: mark for number, mark in step.failed.items()})
        self.unread.update(first + number for number in step.shown)
        self.messages += [*own, *step.answers] if role == "assistant" else [*step.answers, *own]
        if step.unread:
            self.unread.add(place)
        parts = {"unread": step.unread, "beside": step.beside}
        if kept := {kind: found for kind, found in parts.items() if found}:
            self._keep(place, {"content": kept})

    def _add_calls(self, fields: Fields, number: int) -> None:
        """Add the calls in a text; calls of several messages in a row become one message."""
        text = joined_texts("assistant", [text for step in _steps(fields, number, speaks=False) for text in step.texts])
        before = self.messages.pop().tool_calls if self._calling else ()
        self.messages.append(Message("assistant", "", (*before, *spelled_calls(text, number))))

    def _keep(self, place: int, rest: JsonObject) -> None:
        """Keep further fields of a message under its index."""
        place = min(place, len(self.messages) - 1)  # a call was merged into the message before
        known = next((part for part in reversed(self.unknown) if part["message"] == place), None)
        if known is None:
            self.unknown.append({"message": place} | rest)
        else:
            known |= rest


def _thought(fields: Fields, name: str) -> str | None:
    """Take a thought beside the text; true or false only says whether the model was to think."""
    return None if isinstance(fields.peek(name), bool) else fields.take(name, str, default=None)


def spelled_calls(text: str, number: int) -> tuple[ToolCall, ...]:
    """Return the calls in a JSON text: one object or a list of them."""
    given = parsed(text)
    listed: list[Any] = given if isinstance(given, list) and given else [given]
    return tuple(_spelled(call, text, f"call_{number}_{place}") for place, call in enumerate(listed))


def take_muted(fields: Fields) -> bool:
    """Take what says whether a message is to be trained on, and return whether any of it forbids that. Other weights stay."""
    said = [fields.take(name, bool, int, float) for name in _WEIGHTS if fields.peek(name) in (0, 1)]
    return 0 in said


def take_system(fields: Fields, given: Sequence[Any]) -> list[Any]:
    """Put the system message of a separate field before the messages `given`, unless they have one."""
    if any(isinstance(part, dict) and part.get("role") in ("system", "developer") for part in given):
        return list(given)
    for name in _SYSTEM:
        value = fields.peek(name)
        value = value.get("parts") if isinstance(value, dict) else value
        if value and isinstance(value, str | list):
            fields.take(name, str, list, dict)
            return [{"role": "system", "content": value}, *given]
    return list(given)


def _spelled(call: Any, text: str, call_id: str) -> ToolCall:
    if not isinstance(call, dict) or not isinstance(call.get("name"), str):
        return ToolCall(call_id, "", text, malformed=True)
    return named_call(call, call_id)


def _steps(fields: Fields, number: int, *, speaks: bool) -> list[Step]:
    """Return the steps of a message from `content`, from `parts` (Vercel, Gemini), or from a refusal without content."""
    parts = fields.peek("parts")
    if isinstance(parts, list) and parts and isinstance(fields.peek("content"), str | None):
        fields.take("parts", list)
        steps = read_parts(parts, number, speaks=speaks)
        texts = [text for step in steps for text in step.texts]
        if fields.peek("content") in ("", *(joined_texts(role, texts) for role in ("assistant", "user"))):  # further content stays
            fields.take("content", str)
        return steps
    content = fields.take("content", str, list, dict, default=None)
    if content in (None, "") and isinstance(fields.peek("refusal"), str):
        content = fields.take("refusal", str)
    invocations = fields.peek("toolInvocations")
    if speaks and isinstance(invocations, list) and isinstance(content, str | None):
        fields.take("toolInvocations", list)
        wrapped = [{"type": "tool-invocation", "toolInvocation": one} for one in invocations]
        return read_parts([content or "", *wrapped], number, speaks=speaks)
    return _of_content(content, number, speaks=speaks)


def _of_content(content: str | list[Any] | JsonObject | None, number: int, *, speaks: bool) -> list[Step]:
    if content is None or isinstance(content, str):
        return [Step(texts=[content or ""])]
    if isinstance(content, dict):
        return [Step(texts=[json.dumps(content, ensure_ascii=False)])]
    return read_parts(content, number, speaks=speaks)


def _calls(fields: Fields, number: int) -> list[ToolCall]:
    listed = fields.take("tool_calls", list, str, default=[])
    if isinstance(listed, list):
        listed = list(as_list(listed, "messages[].tool_calls"))
    return listed_calls({"tool_calls": listed, "function_call": fields.take("function_call", dict, default=None)}, number)


def _written(message: Message) -> JsonObject:
    row: JsonObject = {"role": message.role, "content": message.content}
    if message.tool_calls:
        row["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in message.tool_calls
        ]
    return row | {name: value for name in ("tool_call_id", "name") if (value := getattr(message, name)) is not None}
