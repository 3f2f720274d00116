"""Read rows of training datasets: preferences, and the questions and answers of Alpaca.

    {"prompt": ..., "chosen": ..., "rejected": ...}    a preference; without a prompt both sides hold the whole dialogue
    {"input": {"messages": ...}, "preferred_output": ..., "non_preferred_output": ...}    the same for OpenAI's fine-tuning
    {"conversation_a": ..., "conversation_b": ..., "winner": "model_a"}                   the same of a chatbot arena
    {"instruction": ..., "input": ..., "output": ...}  a question and its answer

Each value is a text or a list of messages, as {role, content} or {from, value}; a side may be one such message. The prompt of a
preference may be in `messages`, `conversations` or `instruction` and `input`. Other formats read rows with `messages` or
`conversations` alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import takewhile
from typing import Any

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.core.conversation.endings import CUT
from clawpipe.core.conversation.messages import Message, Role
from clawpipe.data.importers.fields import Fields, take_tools
from clawpipe.data.importers.formats.sharegpt import dialogue_in, read_dialogue
from clawpipe.data.importers.message import ReadMessages, take_system, write_chat
from clawpipe.data.importers.names import take_names
from clawpipe.data.importers.outcome import take_outcome
from clawpipe.data.importers.record import Conversation, Preference, all_main, counted, first_request
from clawpipe.data.importers.strict_json import RefusedError
from clawpipe.data.importers.untaught import CUT_SHORT, NO_CONTENT, NO_TEXT, reason_in, says_something
from clawpipe.data.importers.values import object_of, without
from clawpipe.data.wire.marked import without_end

_REPLY_FIELDS = re.compile(r"(?:\A|\n\n)(Human|Assistant): ?")  # speakers in a text with a whole dialogue
_ELSE = ("messages", "conversations", "completion")  # fields that mark a row as another format
_SIDES = ("chosen", "rejected")
_PREFERRED = ("preferred_output", "non_preferred_output")  # the sides of a row of OpenAI's fine-tuning
_ARENA, _WINNERS = ("conversation_a", "conversation_b", "winner"), ("model_a", "model_b")
_NAMES = {"session": "session_id", "user": "user_id"}
_SCORES = (("score_chosen", "score_rejected"), ("chosen_score", "rejected_score"))


def is_alpaca(record: JsonObject) -> bool:
    return isinstance(record.get("instruction"), str) and isinstance(record.get("output"), str)


def read_alpaca(record: JsonObject) -> Conversation:
    """Read a question and its answer.

    Raises:
        RefusedError: a field has another type.
    """
    fields = Fields(record)
    asked = take_instruction(fields)
    unknown: list[JsonObject] = []
    asking = with_system(fields, (*take_history(fields), Message("user", asked)), unknown)
    messages = (*asking, Message("assistant", fields.take("output", str)))
    judged, names = take_outcome(fields), take_names(fields)
    return Conversation(
        messages, all_main(messages), asked, judgements=judged, extra=beside_messages(fields, unknown), **names, **counted(messages)
    )


def take_instruction(fields: Fields) -> str:
    """Take the request: the instruction, and below it the input."""
    parts = [fields.take("instruction", str), fields.take("input", str, default="")]
    return "\n".join(part for part in parts if part)


def take_history(fields: Fields) -> Iterator[Message]:
    """Take the history of a row.

    Raises:
        RefusedError: an entry of the history is not a pair of texts.
    """
    for pair in fields.take("history", list, default=[]):
        if not isinstance(pair, list) or len(pair) != 2 or not all(isinstance(part, str) for part in pair):
            raise RefusedError("history[]: not a question and its answer")
        yield from (Message("user", pair[0]), Message("assistant", pair[1]))


def with_system(fields: Fields, messages: tuple[Message, ...], unknown: list[JsonObject]) -> tuple[Message, ...]:
    """Put the system message of a separate field before messages, unless they have one."""
    if any(message.role == "system" for message in messages):
        return messages
    if fields.peek("system") == "":
        fields.take("system", str)
    given = take_system(fields, ())
    return (*messages_of(given, "system", "system", unknown).messages, *messages) if given else messages


def is_preference(record: JsonObject) -> bool:
    """Whether a row is a preference. One without a side counts too, unless it has another format: it is broken, not a prompt."""
    if any(all(name in record for name in names) for names in (_PREFERRED, _ARENA)):
        return True
    sides = [any(isinstance(record.get(name), str | list | dict) for name in _names_of(side)[:2]) for side in _SIDES]
    named = [any(isinstance(record.get(name), str | list | dict) for name in _names_of(side)) for side in _SIDES]
    return all(named) or (any(sides) and not any(record.get(name) for name in _ELSE))


def _names_of(side: str) -> tuple[str, ...]:
    return side, f"{side}_messages", f"{side}_response"


def read_preference(record: JsonObject) -> Preference:
    """Read a preference. If both sides begin with the question, their common beginning is the prompt.

    Raises:
        RefusedError: the sides are equal, or one of them is not an answer.
    """
    fields = Fields(_with_sides(record))
    unknown: list[JsonObject] = []
    prompt = _prompt_beside(fields, unknown)
    chosen, rejected = (_whole_side(fields, name, unknown) for name in _SIDES)
    if chosen and rejected and chosen[0].role != "assistant" and rejected[0].role != "assistant":
        shared, chosen, rejected = _split(chosen, rejected)
        prompt = (*_system_of(prompt, shared), *shared)
    prompt = with_system(fields, prompt, unknown)
    first_request(prompt)
    if chosen == rejected:  # checked first: equal sides are not a pair
        raise RefusedError("chosen: the same as rejected")
    for name, side in (("chosen", chosen), ("rejected", rejected)):
        if not side or side[0].role != "assistant":
            raise RefusedError(f"{name}: does not answer the prompt")
    tools = take_tools(fields)
    names = take_names(fields)
    return Preference(prompt, chosen, rejected, _margin(fields), tools, beside_messages(fields, unknown), **names)


def _with_sides(record: JsonObject) -> JsonObject:
    """Return a row of OpenAI's fine-tuning, or of an arena, with the names that other preferences have.

    Raises:
        RefusedError: neither side won.
    """
    if all(name in record for name in _PREFERRED):
        request = object_of(record.get("input"))
        sides = dict(zip(_SIDES, (record[name] for name in _PREFERRED), strict=True))
        asked = {"prompt": request.get("messages"), "tools": request.get("tools")}
        return without(record, "input", *_PREFERRED) | without(request, "messages", "tools") | asked | sides
    if not all(name in record for name in _ARENA):
        return record
    if record["winner"] not in _WINNERS:
        raise RefusedError("winner: neither side")
    sides = [record[name] for name in _ARENA[:2]]
    return without(record, *_ARENA[:2]) | dict(zip(_SIDES, sides if record["winner"] == _WINNERS[0] else sides[::-1], strict=True))


def _system_of(prompt: tuple[Message, ...], shared: tuple[Message, ...]) -> list[Message]:
    """Return the system messages of the given prompt, if the dialogue that the sides share has none."""
    has_one = any(message.role == "system" for message in shared)
    return [] if has_one else [message for message in prompt if message.role == "system"]


def _whole_side(fields: Fields, name: str, unknown: list[JsonObject]) -> tuple[Message, ...]:
    """Take one side.

    Raises:
        RefusedError: its record says that the answer was cut short, which a pair has no column for.
    """
    before = len(unknown)
    side = _side(_sided(fields, name), name, unknown)
    if any(reason_in(part) in CUT for part in unknown[before:]):
        raise RefusedError(f"{name}: {CUT_SHORT}")
    return side


def _prompt_beside(fields: Fields, unknown: list[JsonObject]) -> tuple[Message, ...]:
    """Take the common prompt: a prompt, an instruction, or the messages so far; empty if the sides hold it."""
    if isinstance(fields.peek("instruction"), str) and fields.peek("prompt") is None:
        asked = take_instruction(fields)
        return (*take_history(fields), Message("user", asked))
    name = next((name for name in ("prompt", "messages", "conversations") if fields.peek(name) is not None), "prompt")
    value = fields.take(name, str, list, default=[])
    return messages_of(value, name, "user", unknown).messages


def _sided(fields: Fields, name: str) -> str | list[Any]:
    """Take one side; a single message becomes a list."""
    found = next((one for one in _names_of(name) if fields.peek(one) is not None), name)
    value = fields.take(found, str, list, dict)
    return [value] if isinstance(value, dict) else value


def write_preference(row: Preference) -> JsonObject:
    """Return the row that `read_preference` reads back."""
    return {name: write_chat(getattr(row, name)) for name in ("prompt", "chosen", "rejected")} | write_beside(row)


def write_beside(row: Preference) -> JsonObject:
    """Return the fields of a preference besides its messages."""
    names = {column: getattr(row, name) for name, column in _NAMES.items() if getattr(row, name) is not None}
    return dict(row.extra) | ({"tools": row.tools} if row.tools else {}) | names


def _side(value: str | list[Any], where: str, unknown: list[JsonObject]) -> tuple[Message, ...]:
    """Return the messages of one side.

    Raises:
        RefusedError: a turn has no content, or parts that are not text, and cannot be trained on.
    """
    read = messages_of(value, where, "assistant", unknown)
    for place, message in enumerate(read.messages):
        if message.role == "assistant" and (place in read.unread or not says_something(message)):
            raise RefusedError(f"{where}: {NO_TEXT if place in read.unread else NO_CONTENT}")
    return read.messages


def messages_of(value: str | list[Any], where: str, role: Role, unknown: list[JsonObject]) -> ReadMessages:
    """Return the messages of a value; further fields of messages are added to `unknown`."""
    value = value if isinstance(value, list) else dialogue_in(value) or value
    if isinstance(value, str):
        alone = Message(role, without_end(value) if role == "assistant" else value)
        return ReadMessages(_dialogue(value) or (alone,), [])
    read = read_dialogue(value, where)
    unknown.extend({"of": where} | part for part in read.unknown)
    return read


def _dialogue(text: str) -> tuple[Message, ...]:
    """Return the messages of a text with a dialogue in it; none for any other text."""
    before, *pieces = _REPLY_FIELDS.split(text)
    names, texts = pieces[::2], pieces[1::2]
    if before.strip() or names[:2] != ["Human", "Assistant"]:
        return ()
    return tuple(Message("user" if name == "Human" else "assistant", content) for name, content in zip(names, texts, strict=True))


def beside_messages(fields: Fields, unknown: list[JsonObject]) -> JsonObject:
    """Return the fields that are left, with the further fields of messages."""
    return fields.rest | ({"messages": unknown} if unknown else {})


def _split(
    chosen: tuple[Message, ...], rejected: tuple[Message, ...]
) -> tuple[tuple[Message, ...], tuple[Message, ...], tuple[Message, ...]]:
    """Split two dialogues into their common prompt and the sides; they differ from an answer on."""
    shared = [first for first, _ in takewhile(lambda pair: pair[0] == pair[1], zip(chosen, rejected, strict=False))]
    while shared and not all(len(side) > len(shared) and side[len(shared)].role == "assistant" for side in (chosen, rejected)):
        shared.pop()
    length = len(shared)
    return tuple(shared), chosen[length:], rejected[length:]


def _margin(fields: Fields) -> float | None:
    """Return the chosen score minus the rejected one; None without scores, or if the rejected one is higher."""
    for pair in _SCORES:
        scores = [value for name in pair if type(value := fields.peek(name)) in (int, float)]
        if len(scores) == 2 and scores[0] >= scores[1]:
            return float(scores[0] - scores[1])
    return None
