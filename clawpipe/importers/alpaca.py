"""Rows of an instruction and its answer, in the form of Alpaca's.

    {"instruction": ..., "input": ..., "output": ..., "system": ..., "history": [[question, answer], ...]}

The input stands below the instruction. Answers of the history are turns to learn from as well. With `label` or `kto_tag` the whole
is judged.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from clawpipe.importers.outcome import take_outcome
from clawpipe.importers.record import Conversation, Fields, all_main, counted
from clawpipe.importers.strict_json import RefusedError
from clawpipe.messages import Message


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
