"""Read turns in ShareGPT's form, a list of {from, value}, with the markup of Hermes and all known role names.

A gpt value holds an optional `<think>` block, text, and one `<tool_call>` block per call; a tool value holds one `<tool_response>`
block per call of the turn before. In a turn with the role `function_call`, the value is the call.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.core.conversation.messages import Message, ToolCall
from clawpipe.data.importers.fields import Fields, as_list
from clawpipe.data.importers.message import CALLERS, ROLES, ReadMessages, read_messages, spelled_calls, take_muted
from clawpipe.data.importers.strict_json import Reasons, RefusedError
from clawpipe.data.importers.toolcalls import split_calls
from clawpipe.data.wire.marked import marked_dialogue, without_end
from clawpipe.data.wire.spelled import tagged

_RESPONSE = tagged("tool_response")


def dialogue_in(text: str) -> list[JsonObject]:
    """Return the turns in a text that a chat template wrote; none for any other text."""
    return [{"from": speaker, "value": words} for speaker, words in marked_dialogue(text)]


def read_dialogue(given: list[Any], where: str) -> ReadMessages:
    """Read messages from a list of {from, value} or of {role, content}.

    Raises:
        RefusedError: the list has neither form.
    """
    if not any(isinstance(part, dict) and "from" in part for part in given):
        return read_messages(given, where)
    reader = _Turns(where, asked=any(isinstance(part, dict) and part.get("from") in ("human", "user") for part in given))
    reasons = Reasons()
    for number, part in enumerate(as_list(given, where)):
        with reasons:
            reader.add(part, number)
    reasons.raise_all()
    return ReadMessages(tuple(reader.messages), reader.unknown, muted=frozenset(reader.muted))


class _Turns:
    """Reads turns one by one. Without a user role (`asked` is False), the role `environment` is the user."""

    def __init__(self, where: str, *, asked: bool) -> None:
        self.messages: list[Message] = []
        self.unknown: list[JsonObject] = []
        self.muted = set[int]()
        self._where, self._asked = where, asked
        self._pending: tuple[ToolCall, ...] = ()  # calls without a result yet
        self._calling = False

    def add(self, part: JsonObject, number: int) -> None:
        fields, first = Fields(part, f"{self._where}[]."), len(self.messages)
        speaker, value = fields.take("from", str), fields.take("value", str)
        role = "user" if speaker == "environment" and not self._asked else ROLES.get(speaker)
        if speaker in CALLERS:
            self._call(value, number)
        elif role is None:
            raise RefusedError(f"{self._where}[].from: not system, human, gpt or tool")
        elif role == "tool":
            self.messages += _answers(value, self._pending)
        elif role == "assistant":
            text, calls = split_calls(without_end(value), number)
            self._pending = tuple(calls)
            self.messages.append(Message("assistant", text, self._pending))
        else:
            self.messages.append(Message(role, value))
        self._calling = speaker in CALLERS
        self._keep(fields, first)

    def _call(self, value: str, number: int) -> None:
        before = self.messages.pop().tool_calls if self._calling else ()
        self._pending = (*before, *spelled_calls(value, number))
        self.messages.append(Message("assistant", "", self._pending))

    def _keep(self, fields: Fields, first: int) -> None:
        if take_muted(fields):
            self.muted.update(range(first, len(self.messages)))
        if rest := fields.rest:
            self.unknown.append({"message": min(first, len(self.messages) - 1)} | rest)


def _answers(value: str, calls: Sequence[ToolCall]) -> Iterator[Message]:
    """Yield tool results, matched to the calls of the turn before by their order, because the calls have no ids."""
    blocks = [found["line"] or found["text"] or "" for found in _RESPONSE.finditer(value)]
    if not blocks or _RESPONSE.sub("", value).strip():
        blocks = [value]  # text beside the blocks must not be lost
    for place, block in enumerate(blocks):
        call = calls[place] if place < len(calls) else None
        name, content = _answer(block)
        yield Message("tool", content, (), call.id if call else None, call.name if call and call.name else name)


def _answer(block: str) -> tuple[str | None, str]:
    try:
        answer = json.loads(block)
        content, name = answer["content"], answer.get("name")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None, block
    return name, content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)
