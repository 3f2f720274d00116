"""Calls that a text spells as JSON objects, and blocks between tags: `<tool_call>{"name": ..., "arguments": {...}}</tool_call>`."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from clawpipe.core.conversation.messages import ToolCall
from clawpipe.data.wire.arguments import named_call, neutral_arguments, repeats_a_key
from clawpipe.data.wire.thoughts import Found, split_calls


def tagged(tag: str) -> re.Pattern[str]:
    """Return a pattern for a tag: its content is a `line` of JSON, which may quote the tag, else `text` up to the end tag."""
    return re.compile(rf"<{tag}>(?:\n(?P<line>[^\n]*)\n|\n?(?P<text>(?:(?!<{tag}>).)*?)\n?)</{tag}>", re.DOTALL)


TOOL_CALL = tagged("tool_call")
_REST = r"[^\n]*\s*|(?:(?!<tool_call>).)*"  # a line, or text without another tag: what can be written between tags as it was
_OPEN = re.compile(
    rf"(?:\A|(?<=\n))<tool_call>(?P<block>\s*(?=\S)(?:{_REST}))\Z|<tool_call>(?P<object>\s*(?=\{{)(?:{_REST}))\Z", re.DOTALL
)
MOST_CHARACTERS = 8192  # of a call that is run


def split_tagged_calls(text: str) -> tuple[str, list[str]]:
    """Return a text without its `<tool_call>` blocks and without the line breaks before them, and the content of each block.

    A tag without its end is a block if it begins a line or an object follows it, and prose else.
    """
    return split_calls(text, _block)


def _block(text: str, place: int) -> Found | None:
    found = TOOL_CALL.search(text, place) or _OPEN.search(text, place)
    if found is None:
        return None
    [body] = [one for one in found.groupdict().values() if one is not None]
    start = found.start()
    return Found(start - (text[start - 1 : start] == "\n"), found.end(), (body.strip(),))


def spelled_call(call_id: str, body: str, keys: Sequence[str] = ("arguments",)) -> ToolCall:
    """Return the call of a JSON object with a `name` and, under one of `keys`, its arguments, which it may lack.

    Of any other body the call is malformed, and keeps the body whole, so that it can be written as it was; so is one that has its
    arguments under another name: run without them, it would do what nobody asked for.
    """
    name = ""
    try:
        value = json.loads(body)
        name = storable(value.get("name"))
        call = named_call(value, call_id, keys)
        if not name or call.malformed or repeats_a_key(body, value):
            raise ValueError("a call has a name and an object of arguments")
        return ToolCall(call_id, name, neutral_arguments(json.loads(call.arguments)))
    except (ValueError, AttributeError, RecursionError):
        return ToolCall(call_id, name, body, malformed=True)


def storable(name: Any) -> str:
    """Return the name; "" if it is no string, or has control characters or half a surrogate pair, which UTF-8 cannot express."""
    return name if isinstance(name, str) and name.isprintable() else ""


def spelled_object(call: ToolCall, key: str = "arguments") -> str:
    """Return a call as a JSON object with its arguments under `key`: the inverse of `spelled_call`.

    A malformed call is written as it was. If an API gave its arguments alone, they get their name.
    """
    if call.malformed and (not call.name or call.name in call.arguments):
        return call.arguments
    arguments = call.arguments if call.malformed else json.dumps(json.loads(call.arguments), ensure_ascii=False)
    return f'{{"name": {json.dumps(call.name, ensure_ascii=False)}, "{key}": {arguments}}}'
