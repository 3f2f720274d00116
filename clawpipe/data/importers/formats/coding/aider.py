"""Read chats of Aider, `.aider.chat.history.md`: what was typed, printed and answered, as Markdown.

    # aider chat started at 2026-11-22 10:00:00
    #### what the user typed
    > what the program printed
    what the model answered

Each chat of a file is one conversation. A line of the model that looks like the other two is taken for them, as nothing tells them
apart. Commands such as `/add` are the program's, and so is what it printed: neither is part of the conversation. The message of a
command that goes to the model (`/code fix it`) stands in the file twice, and is read once.

The program counts the tokens of each answer, and goes on by itself where files were added or an edit did not fit. What it asked
then is not in the file, and its own report may stand there unmarked: what follows the count, up to what the user types next, is
context.
"""

from __future__ import annotations

import re

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.data.importers.formats.chat import read_chat
from clawpipe.data.importers.record import Conversation
from clawpipe.data.importers.sources.collected import AIDER
from clawpipe.data.importers.turns import Turns
from clawpipe.data.importers.values import text_of

_TYPED, _PRINTED = re.compile(r"#### ?(.*)"), re.compile(r"> ?(.*)")
_MODEL = re.compile(r"(?:Main model|Model|Models): (\S+) with ")
_COUNTED = re.compile(r"Tokens: .* sent, .* received\b.*")
_BROKEN_OFF = "KeyboardInterrupt"
_COMMANDS = ("/ask ", "/code ", "/architect ")  # which go to the model


def is_aider(record: JsonObject) -> bool:
    return isinstance(record.get(AIDER), str)


def read_aider(record: JsonObject) -> list[Conversation]:
    """Read one chat.

    Raises:
        RefusedError: it is not a conversation.
    """
    turns, typed, said = Turns(), list[str](), list[str]()
    printed, unasked = list[str](), JsonObject()
    for line in (*record[AIDER].splitlines(), "#### "):
        if found := _TYPED.fullmatch(line):
            _flush_reply(turns, said, unasked)
            unasked = JsonObject()
            typed.append(found[1])
        elif found := _PRINTED.fullmatch(line):
            printed.append(found[1])
            if _BROKEN_OFF in found[1]:
                _flush_reply(turns, said, unasked | {"finish_reason": "interrupted"})
            elif _COUNTED.match(found[1]):
                _flush_reply(turns, said, unasked)
                unasked = {"weight": 0}
        else:
            _flush_request(turns, typed)
            said.append(line)
    model = next((found[1] for line in printed if (found := _MODEL.match(line))), None)
    started = text_of(record.get("started"))
    named = {"session_id": f"aider {started}" if started else None, "model": model}
    return read_chat({"messages": turns.messages} | {name: value for name, value in named.items() if value})


def _flush_request(turns: Turns, typed: list[str]) -> None:
    """Add what was typed, unless it was a command to the program."""
    text = "\n".join(line.rstrip() for line in typed).strip()
    typed.clear()
    spoken = next((text.removeprefix(command) for command in _COMMANDS if text.startswith(command)), text)
    repeated = bool(turns.messages) and turns.messages[-1] == {"role": "user", "content": spoken}
    if spoken and not repeated and (spoken != text or not text.startswith(("/", "!"))):
        turns.say("user", spoken)


def _flush_reply(turns: Turns, said: list[str], more: JsonObject) -> None:
    """Add an answer as a message of its own, unless nobody asked."""
    text = "\n".join(said).strip()
    said.clear()
    if text and turns.messages:
        turns.close()
        turns.say("assistant", text, **more)
