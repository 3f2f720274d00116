"""What an OpenAI-compatible endpoint's answer says, and the tokens that it took."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.core.basics.words import whole_characters
from clawpipe.data.wire.texts import joined_texts
from clawpipe.data.wire.thoughts import FIELDS
from clawpipe.play.judging.spending import Tokens, estimated

_MOST_COUNTED = 1 << 40  # tokens of an answer that can be true
_LONGEST_TOKEN = 32  # bytes: of less tokens than that says no text of a question consists


@dataclass(frozen=True)
class Said:
    """An answer.

    Attributes:
        text: what stands in its `content`, or its thoughts where that is empty.
        finish_reason: why it ended; "": it does not say.
        tokens: of request and reply.
        passing: whether it may be another one tomorrow: it is empty or filtered, or no chat completion.
    """

    text: str
    finish_reason: str
    tokens: Tokens
    passing: bool = False
    estimated: bool = False


def read_answer(raw: bytes, data: bytes) -> Said:
    """Read an answer; one that is no chat completion is an answer that says nothing."""
    try:
        given = json.loads(raw)
        choice = given["choices"][0]
        message, reason = choice["message"], str(choice.get("finish_reason") or "")
        text = whole_characters(_text(message))
    except (ValueError, KeyError, IndexError, TypeError, AttributeError, RecursionError):
        shown = raw[:1000].decode(errors="replace")
        return Said(f"no chat completion: {shown}", "", _about(data, shown), passing=True, estimated=True)
    counted = _usage(given, data, text)
    passing = not text.strip() or reason == "content_filter"
    return Said(text, reason, counted or _about(data, text), passing, counted is None)


def _text(message: JsonObject) -> str:
    content = message.get("content")
    said = joined_texts("assistant", _texts(content if isinstance(content, list) else [content]))
    thoughts = [thought for name in FIELDS if isinstance(thought := message.get(name), str)]
    return said if said.strip() else "".join(thoughts[:1])


def _texts(parts: Sequence[Any]) -> list[str]:
    """Return the texts of a content and of its parts; parts that hold thoughts have another field."""
    given = (part.get("text") if isinstance(part, dict) else part for part in parts)
    return [text for text in given if isinstance(text, str)]


def _usage(given: JsonObject, data: bytes, text: str) -> Tokens | None:
    """Return what an endpoint counted; None where it did not, or where that cannot be true."""
    usage = given.get("usage")
    counts = [usage.get(name) for name in ("prompt_tokens", "completion_tokens")] if isinstance(usage, dict) else []
    counted = [count for count in counts if type(count) is int and 0 <= count < _MOST_COUNTED]
    if (
        len(counted) < 2
        or counted[0] * _LONGEST_TOKEN < len(data)
        or counted[1] * _LONGEST_TOKEN < len(text.encode(errors="replace"))
    ):
        return None
    return Tokens(*counted)


def _about(data: bytes, text: str) -> Tokens:
    return Tokens(estimated(data.decode(errors="replace")), estimated(text))
