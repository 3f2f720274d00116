"""What a judge is shown: one JSON document in UTF-8, of bounded size, whose texts cannot end it or speak in another role."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterable, Sequence
from typing import Any

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.core.conversation.messages import Message

_UNSEEN = ("Cc", "Cf", "Co", "Cs", "Cn", "Zl", "Zp")  # categories of characters that nobody sees, or that change what is seen
_SUSPECT = re.compile(r"[<>&]|[^\x20-\x7e]")
_MOST_CALLS = 16  # of one message
_NAME = 200  # bytes of a tool's name
_FRAME = 40  # bytes of a message's own keys and quotation marks


def fenced(shown: JsonObject, code: str) -> str:
    """Return the document, which begins and ends with the code: a digest of what is shown, so none of its texts holds it.

    Characters that tags and tokens of roles are made of, and those that nobody sees, are escaped.
    """
    written = json.dumps({"fence": code, **shown, "end of fence": code}, ensure_ascii=False)
    return _SUSPECT.sub(_escaped, written)


def _escaped(found: re.Match[str]) -> str:
    character = found[0]
    if character not in "<>&" and unicodedata.category(character) not in _UNSEEN:
        return character
    point = ord(character)
    units = [point] if point < 0x10000 else [0xD800 + (point - 0x10000 >> 10), 0xDC00 + (point - 0x10000 & 0x3FF)]
    return "".join(f"\\u{unit:04x}" for unit in units)


def cut(text: str, most: int) -> str:
    """Return a text without its middle where it has more bytes than `most`: reasons and results often end with what matters."""
    size = len(text.encode(errors="replace"))
    if size <= most:
        return text
    kept = int(len(text) * most / size) // 2
    return f"{text[:kept]}[{len(text) - 2 * kept} characters left out]{text[len(text) - kept :]}"


def message_shown(message: Message, most: int) -> dict[str, Any]:
    """Return a message with about `most` bytes of text, and as many of calls."""
    calls = message.tool_calls[:_MOST_CALLS]
    written = [
        {"name": cut(call.name, _NAME), "arguments": cut(call.arguments, most // len(calls)), "malformed": call.malformed}
        for call in calls
    ]
    left_out = {"calls left out": len(message.tool_calls) - len(calls)} if len(message.tool_calls) > len(calls) else {}
    return {"role": message.role, "text": cut(message.content, most)} | ({"calls": written} if written else {}) | left_out


def messages_shown(messages: Sequence[Message], most: int, each: int, failures: Iterable[int] = ()) -> list[dict[str, Any]]:
    """Return the last of these messages that fit into `most` bytes, each cut to `each`; the first entry says how many are left out.

    Args:
        failures: places of results that are failures, which are said to be.
    """
    failed = frozenset(failures)
    found, used = list[dict[str, Any]](), 0
    for place in range(len(messages) - 1, -1, -1):
        entry = message_shown(messages[place], each) | ({"failed": True} if place in failed else {})
        used += size_of(entry)
        if found and used > most:
            return [{"left out": f"{place + 1} messages"}, *reversed(found)]
        found.append(entry)
    return list(reversed(found))


def size_of(value: Any) -> int:
    """Return the bytes of a JSON value."""
    return len(json.dumps(value, ensure_ascii=False).encode(errors="replace")) + _FRAME
