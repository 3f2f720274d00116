"""Read what a judge's endpoint sends as the answer to a question, in the forms that endpoints have for it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.core.basics.words import whole_characters
from clawpipe.data.wire.texts import joined_texts
from clawpipe.data.wire.thoughts import FIELDS, OPENING
from clawpipe.play.judging.spending import Tokens, estimated

_PASSING = ("content_filter", "error")  # reasons for which an answer ended that another one may not have
_CUT = "length"  # the reason of an answer that ends at max_tokens
_EVENT = b"data:"
_MOST_COUNTED = 1 << 40  # tokens of an answer that can be true
_LONGEST_TOKEN = 32  # bytes: of less tokens than that says no text of a question consists
_ERRORS = (ValueError, KeyError, IndexError, TypeError, AttributeError, RecursionError)


@dataclass(frozen=True)
class Said:
    """An answer.

    Attributes:
        text: what stands in its `content`; else the arguments of the tools that it calls, or its thoughts.
        finish_reason: why it ended; "": it does not say.
        tokens: of request and reply.
        passing: whether it may be another one tomorrow: it is empty or filtered, or no chat completion.
        estimated: whether the endpoint has not counted the tokens.
    """

    text: str
    finish_reason: str
    tokens: Tokens
    passing: bool = False
    estimated: bool = False


def read_said(raw: bytes, asked: bytes) -> Said:
    """Read an answer; one that is no chat completion is an answer that says nothing.

    Args:
        raw: the body: a chat completion, or its stream, which some endpoints send unasked.
        asked: the body of the request.
    """
    try:
        given = _joined(raw) if raw.lstrip().startswith((_EVENT, b":")) else json.loads(raw)
        choice = given["choices"][0]
        reason = str(choice.get("finish_reason") or "")
        text = whole_characters(_text(choice["message"], cut=reason == _CUT))
    except _ERRORS:
        return unreadable(raw[:1000].decode(errors="replace"), asked)
    counted = _usage(given, asked, text)
    passing = (not text.strip() and reason != _CUT) or reason in _PASSING
    return Said(text, reason, counted or _about(asked, text), passing, counted is None)


def unreadable(shown: str, asked: bytes) -> Said:
    return Said(f"no chat completion: {shown}", "", _about(asked, shown), passing=True, estimated=True)


def _joined(raw: bytes) -> JsonObject:
    """Return the chat completion that a stream consists of."""
    events = list(_events(raw))
    choices = [choice for event in events for choice in event.get("choices") or () if not choice.get("index")]
    deltas = [choice.get("delta") or {} for choice in choices]
    texts = {name: "".join(str(delta.get(name) or "") for delta in deltas) for name in ("content", *FIELDS)}
    reasons = [reason for choice in choices if (reason := choice.get("finish_reason"))]
    usage = [event["usage"] for event in events if event.get("usage")]
    if not choices:
        raise ValueError("a stream without an answer")
    ended = {"message": texts, "finish_reason": reasons[-1] if reasons else _CUT}  # one that breaks off was not finished
    return {"choices": [ended], "usage": usage[-1] if usage else None}


def _events(raw: bytes) -> Iterator[JsonObject]:
    for line in raw.splitlines():
        event = line.removeprefix(_EVENT).strip()
        if line.startswith(_EVENT) and event != b"[DONE]":
            yield json.loads(event)


def _text(message: JsonObject, *, cut: bool) -> str:
    """Return what a message says. Thoughts that were cut off stay a thought without an end: what they draft is no answer."""
    content = message.get("content")
    said = joined_texts("assistant", _texts(content if isinstance(content, list) else [content])) or _arguments(message)
    thoughts = [thought for name in FIELDS if isinstance(thought := message.get(name), str) and thought]
    if said.strip() or not thoughts:
        return said
    return f"{OPENING}\n{thoughts[0]}" if cut else thoughts[0]


def _arguments(message: JsonObject) -> str:
    """Return the arguments of the tools that a message calls: some models answer a layout by a call."""
    calls = message.get("tool_calls")
    functions = [call.get("function") for call in calls if isinstance(call, dict)] if isinstance(calls, list) else []
    given = [function.get("arguments") for function in functions if isinstance(function, dict)]
    return "\n".join(text for text in given if isinstance(text, str))


def _texts(parts: Sequence[Any]) -> list[str]:
    """Return the texts of a content and of its parts; parts that hold thoughts have another field."""
    given = (part.get("text") if isinstance(part, dict) else part for part in parts)
    return [text for text in given if isinstance(text, str)]


def _usage(given: JsonObject, asked: bytes, text: str) -> Tokens | None:
    """Return what an endpoint counted; None where it did not, or where that cannot be true."""
    usage = given.get("usage")
    counts = [usage.get(name) for name in ("prompt_tokens", "completion_tokens")] if isinstance(usage, dict) else []
    counted = [count for count in counts if type(count) is int and 0 <= count < _MOST_COUNTED]
    if (
        len(counted) < 2
        or counted[0] * _LONGEST_TOKEN < len(asked)
        or counted[1] * _LONGEST_TOKEN < len(text.encode(errors="replace"))
    ):
        return None
    return Tokens(*counted)


def _about(asked: bytes, text: str) -> Tokens:
    return Tokens(estimated(asked.decode(errors="replace")), estimated(text))
