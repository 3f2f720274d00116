"""Functions that the tool-call formats share: they search text for calls, and convert arguments to JSON that can be stored."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

from clawpipe.core.conversation.messages import ToolCall
from clawpipe.data.wire.spelled import spelled_call

MAX_CHARACTERS = 8192  # per call; longer calls are malformed


class Parsed(NamedTuple):
    """The text of an assistant message without its calls, and the calls in order."""

    content: str
    calls: tuple[ToolCall, ...]


class Marker(str):
    """Text that is one token in the vocabulary of models that were trained on the format; no other text becomes that token."""

    __slots__ = ()


Pieces: TypeAlias = list[str]  # joined they are the text; a `Marker` among them becomes its token where the vocabulary has it


def json_call(call_id: str, body: str, keys: Sequence[str] = ("arguments",)) -> ToolCall:
    """Return the call of a JSON object, as `spelled_call` does; a longer one than may be run is malformed."""
    too_long = len(body) > MAX_CHARACTERS
    return ToolCall(call_id, "", body, malformed=True) if too_long else spelled_call(call_id, body, keys)


def json_end(text: str, start: int) -> int | None:
    """Return where the JSON value ends that begins at `start`; None if there is none."""
    try:
        return json.JSONDecoder().raw_decode(text, start)[1]
    except (ValueError, RecursionError):
        return None


def joined(content: str, calls: list[str], gap: str = "\n") -> str:
    """Return content and calls, with `gap` between them where there are both, and each call on a line of its own."""
    return f"{content}{gap if content and calls else ''}" + "\n".join(calls)


def written_json(value: Any) -> str:
    """Return JSON on one line; a text is a literal that is valid in Python, too."""
    return json.dumps(value, ensure_ascii=False)


def before(text: str, *openings: str) -> int:
    """Return where the first of `openings` begins, or, at the end of `text`, may begin; the length of `text` if none does."""
    places = [place for opening in openings if (place := text.find(opening)) >= 0]
    return min(places, default=len(text) - overlap(text, openings))


def overlap(text: str, wanted: Sequence[str]) -> int:
    """Return the length of the longest end of `text` with which one of `wanted` begins."""
    longest = max(map(len, wanted), default=1) - 1
    lengths = range(min(longest, len(text)), 0, -1)
    return next((length for length in lengths if any(word.startswith(text[-length:]) for word in wanted)), 0)
