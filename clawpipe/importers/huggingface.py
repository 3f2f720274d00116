"""Rows as data sets for training hold them: preferences, prompts with their completion, prompts alone.

    {"prompt": ..., "chosen": ..., "rejected": ...}    a preference; without a prompt both sides hold all of it
    {"prompt": ..., "completion": ...}                 an answer to imitate, or with a truth value in `label` to be judged
    {"prompt": ...}                                    a task

Each value is a text or a list of messages, as {role, content} or {from, value}; a side may be one such message. For the prompt of a
preference there may be `messages`, `conversations` or `instruction` and `input`. Rows of `messages` or `conversations` alone are
those of the formats that have them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import takewhile
from typing import Any

from clawpipe.importers.message import ReadMessages, take_system, write_chat
from clawpipe.importers.outcome import take_outcome
from clawpipe.importers.record import (
    NO_CONTENT,
    NO_TEXT,
    Conversation,
    Fields,
    Kind,
    Preference,
    Prompt,
    all_main,
    counted,
    first_request,
    says_something,
    take_tools,
)
from clawpipe.importers.sharegpt import read_dialogue
from clawpipe.importers.strict_json import RefusedError
from clawpipe.messages import Message, Role

_SPOKEN = re.compile(r"(?:\A|\n\n)(Human|Assistant): ?")  # speakers in a text that is a whole dialogue
_ELSE = ("messages", "conversations", "completion")  # what makes a row another one
_SIDES = ("chosen", "rejected")
_WHOSE = {"session": "session_id", "user": "user_id"}
_SCORES = (("score_chosen", "score_rejected"), ("chosen_score", "rejected_score"))


def is_alpaca(record: dict[str, Any]) -> bool:
    return isinstance(record.get("instruction"), str) and isinstance(record.get("output"), str)


def read_alpaca(record: dict[str, Any]) -> Conversation:
    """A question and its answer.

    Raises:
        RefusedError: a field of another type.
    """
    fields = Fields(record)
    asked = take_instruction(fields)
    messages = (*take_before(fields), Message("user", asked), Message("assistant", fields.take("output", str)))
    return Conversation(
        messages, all_main(messages), asked, judgements=take_outcome(fields), extra=fields.rest, **counted(messages)
    )


def take_instruction(fields: Fields) -> str:
    """What is asked: the instruction, and below it the input."""
    parts = [fields.take("instruction", str), fields.take("input", str, default="")]
    return "\n".join(part for part in parts if part)


def take_before(fields: Fields) -> Iterator[Message]:
    """System message and history of a row.

    Raises:
        RefusedError: the history holds something else than pairs of texts.
    """
    if system := fields.take("system", str, default=""):
        yield Message("system", system)
    for pair in fields.take("history", list, default=[]):
        if not isinstance(pair, list) or len(pair) != 2 or not all(isinstance(part, str) for part in pair):
            raise RefusedError("history[]: not a question and its answer")
        yield from (Message("user", pair[0]), Message("assistant", pair[1]))


def is_preference(record: dict[str, Any]) -> bool:
    """One that lacks a side, too, unless it is something else as well: it is broken, and no prompt."""
    sides = [any(isinstance(record.get(name), str | list | dict) for name in (side, f"{side}_messages")) for side in _SIDES]
    return all(sides) or (any(sides) and not any(record.get(name) for name in _ELSE))


def is_completion(record: dict[str, Any]) -> bool:
    return all(isinstance(record.get(name), str | list) for name in ("prompt", "completion"))


def is_prompt(record: dict[str, Any]) -> bool:
    return isinstance(record.get("prompt"), str | list)


def read_preference(record: dict[str, Any]) -> Preference:
    """A preference. Sides that begin with the question stand for themselves: their common beginning is the prompt.

    Raises:
        RefusedError: it is none: the sides are equal, or one of them does not answer.
    """
    fields = Fields(record)
    unknown: list[dict[str, Any]] = []
    prompt = _prompt_beside(fields, unknown)
    chosen, rejected = (_side(_sided(fields, name), name, unknown) for name in _SIDES)
    if chosen and rejected and chosen[0].role != "assistant" and rejected[0].role != "assistant":
        prompt, chosen, rejected = _split(chosen, rejected)
    first_request(prompt)
    if chosen == rejected:  # before what each lacks: that is no pair at all
        raise RefusedError("chosen: the same as rejected")
    for name, side in (("chosen", chosen), ("rejected", rejected)):
        if not side or side[0].role != "assistant":
            raise RefusedError(f"{name}: does not answer the prompt")
    tools = take_tools(fields)
    whose = _whose(fields)
    return Preference(prompt, chosen, rejected, _margin(fields), tools, _extra(fields, unknown), **whose)


def _prompt_beside(fields: Fields, unknown: list[dict[str, Any]]) -> tuple[Message, ...]:
    """What both sides answer: the prompt, an instruction, or the messages so far; nothing where the sides hold it."""
    if isinstance(fields.peek("instruction"), str) and fields.peek("prompt") is None:
        asked = take_instruction(fields)
        return (*take_before(fields), Message("user", asked))
    name = next((name for name in ("prompt", "messages", "conversations") if fields.peek(name) is not None), "prompt")
    value = fields.take(name, str, list, default=[])
    return _messages_of(take_system(fields, value) if isinstance(value, list) and value else value, name, "user", unknown).messages


def _sided(fields: Fields, name: str) -> str | list[Any]:
    """One side; one message alone counts as a list of it."""
    found = f"{name}_messages" if fields.peek(name) is None and fields.peek(f"{name}_messages") is not None else name
    value = fields.take(found, str, list, dict)
    return [value] if isinstance(value, dict) else value


def read_completion(record: dict[str, Any]) -> Conversation:
    """A prompt with its completion, which alone is to be learned; one that is labelled good or bad is scored 1 or 0.

    Raises:
        RefusedError: it is no question and answer.
    """
    fields = Fields(record)
    unknown: list[dict[str, Any]] = []
    asked = _messages_of(fields.take("prompt", str, list), "prompt", "user", unknown).messages
    read = _messages_of(fields.take("completion", str, list), "completion", "assistant", unknown)
    answer = read.messages
    judged = take_outcome(fields)
    context: tuple[Kind, ...] = tuple("side" for message in asked if message.role == "assistant")
    whose = _whose(fields)
    return Conversation(
        (*asked, *answer),
        (*context, *all_main(answer)),
        first_request(asked),
        judgements=judged,
        tools=take_tools(fields),
        extra=_extra(fields, unknown),
        unread=frozenset(len(asked) + place for place in read.unread),
        **whose,
        **counted((*asked, *answer)),
    )


def read_prompt(record: dict[str, Any]) -> Prompt:
    """A task without an attempt.

    Raises:
        RefusedError: nobody asks, or the last word is an answer.
    """
    fields = Fields(record)
    unknown: list[dict[str, Any]] = []
    messages = _messages_of(fields.take("prompt", str, list), "prompt", "user", unknown).messages
    first_request(messages)
    if messages[-1].role == "assistant":
        raise RefusedError("prompt: ends with an answer")
    tools, whose = take_tools(fields), _whose(fields)
    return Prompt(messages, tools, _extra(fields, unknown), **whose)


def write_preference(row: Preference) -> dict[str, Any]:
    """The row that `read_preference` reads back."""
    return {name: write_chat(getattr(row, name)) for name in ("prompt", "chosen", "rejected")} | write_beside(row)


def write_beside(row: Preference) -> dict[str, Any]:
    """What a preference says besides its messages."""
    whose = {column: getattr(row, name) for name, column in _WHOSE.items() if getattr(row, name) is not None}
    return dict(row.extra) | ({"tools": row.tools} if row.tools else {}) | whose


def _side(value: str | list[Any], where: str, unknown: list[dict[str, Any]]) -> tuple[Message, ...]:
    """Messages of one side, all of whose turns are learned from, or from whose turns one learns to keep away.

    Raises:
        RefusedError: of one of its turns there is nothing to learn.
    """
    read = _messages_of(value, where, "assistant", unknown)
    for place, message in enumerate(read.messages):
        if message.role == "assistant" and (place in read.unread or not says_something(message)):
            raise RefusedError(f"{where}: {NO_TEXT if place in read.unread else NO_CONTENT}")
    return read.messages


def _messages_of(value: str | list[Any], where: str, role: Role, unknown: list[dict[str, Any]]) -> ReadMessages:
    """Messages of a value; fields that a message does not have are added to `unknown`."""
    if isinstance(value, str):
        return ReadMessages(_dialogue(value) or (Message(role, value),), [])
    read = read_dialogue(value, where)
    unknown.extend({"of": where} | part for part in read.unknown)
    return read


def _dialogue(text: str) -> tuple[Message, ...]:
    """The messages of a text in which both speak; none if it is just a text."""
    before, *pieces = _SPOKEN.split(text)
    names, texts = pieces[::2], pieces[1::2]
    if before.strip() or names[:2] != ["Human", "Assistant"]:
        return ()
    return tuple(Message("user" if name == "Human" else "assistant", read) for name, read in zip(names, texts, strict=True))


def _whose(fields: Fields) -> dict[str, Any]:
    """Session and user, as far as the row names them; what is no name stays among what no field holds."""
    return {name: _name(fields.take(column, str, int, float)) for name, column in _WHOSE.items() if _name(fields.peek(column))}


def _name(value: Any) -> str:
    """A number counts as it is written; tables hold whole ones as doubles where some are null."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return str(value) if isinstance(value, str | int) and not isinstance(value, bool) else ""


def _extra(fields: Fields, unknown: list[dict[str, Any]]) -> dict[str, Any]:
    return fields.rest | ({"messages": unknown} if unknown else {})


def _split(
    chosen: tuple[Message, ...], rejected: tuple[Message, ...]
) -> tuple[tuple[Message, ...], tuple[Message, ...], tuple[Message, ...]]:
    """Prompt and sides of two dialogues, which part where an answer begins."""
    shared = [first for first, _ in takewhile(lambda pair: pair[0] == pair[1], zip(chosen, rejected, strict=False))]
    while shared and not all(len(side) > len(shared) and side[len(shared)].role == "assistant" for side in (chosen, rejected)):
        shared.pop()
    length = len(shared)
    return tuple(shared), chosen[length:], rejected[length:]


def _margin(fields: Fields) -> float | None:
    """By how much the chosen side leads; None where nobody scored them, or the scores say otherwise."""
    for names in _SCORES:
        scores = [value for name in names if type(value := fields.peek(name)) in (int, float)]
        if len(scores) == 2 and scores[0] >= scores[1]:
            return float(scores[0] - scores[1])
    return None
