"""Why a captured reply does not teach, although its client calls the turn a main turn."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Literal

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.core.conversation.endings import ending_of_reason
from clawpipe.data.capture.records import Answer, Turn
from clawpipe.data.wire.draw import is_constrained

Fault = Literal["parts that are no text", "cancelled", "broken", "no finish reason", "filtered or aborted", "held to a grammar"]
NO_TEXT: Fault = "parts that are no text"
CONSTRAINED: Fault = "held to a grammar"
BY_CONTENT = "content"  # the source of the type of a turn that is a side turn because of such parts
BY_CONSTRAINT = "constraint"  # the same of a turn whose request holds its answer to a grammar

_TEXTS = ("text", "input_text", "output_text", "summary_text", "refusal")
_THOUGHTS = ("thinking", "redacted_thinking", "reasoning", "reasoning_text", "thought")
_CALLS = ("tool_use", "tool_call", "tool-call", "tool_result", "tool-result", "function_call", "function_call_output")
_READ = (*_TEXTS, *_THOUGHTS, *_CALLS)
_BESIDE = (
    "audio",
    "image",
    "images",
    "video",
    "videos",
    "file",
    "files",
    "attachments",
)  # fields of a message
_INNER = ("content", "output", "parts")  # fields that hold the parts of a message or of a tool's result


def fault_of(turn: Turn, answer: Answer) -> Fault | None:
    """Return why a reply does not teach; None if it may.

    A reply to a picture has no meaning for whoever sees only its text, and the tokens that stood for the picture are not known to a
    trainer. Of an answer that a grammar held, the policy has chosen less than it says. One that was not finished, or cut by a
    filter, must not teach its end.
    """
    if turn.turn_type_from == BY_CONTENT or holds_more_than_text([*_messages(turn), answer.message]):
        return NO_TEXT
    if is_constrained(turn.request):
        return CONSTRAINED
    if turn.ending != "complete":
        return turn.ending
    if not answer.finish_reason:
        return "no finish reason"
    return "filtered or aborted" if ending_of_reason(answer.finish_reason) == "aborted" else None


def faults_of(turn: Turn) -> set[Fault]:
    """Return the faults of a turn's answers."""
    return {fault for answer in turn.answers if (fault := fault_of(turn, answer))}


def holds_more_than_text(messages: Iterable[Any]) -> bool:
    """Whether a message holds a picture, a sound, a file or another part that is no text, also in a tool's result."""
    return any(_is_more_than_text(message) for message in messages if isinstance(message, dict))


def _messages(turn: Turn) -> list[Any]:
    given = turn.request.get("messages")
    return given if isinstance(given, list) else []


def _is_more_than_text(holder: JsonObject) -> bool:
    return any(holder.get(name) for name in _BESIDE) or any(_is_foreign(part) for part in _parts(holder))


def _parts(holder: JsonObject) -> Iterator[Any]:
    for name in _INNER:
        value = holder.get(name)
        if isinstance(value, list):
            yield from value
        elif isinstance(value, dict) and "type" in value:
            yield value


def _is_foreign(part: Any) -> bool:
    """Whether a part is neither text nor thought nor call, or holds such a part."""
    if not isinstance(part, dict):
        return not isinstance(part, str)
    kind = part.get("type")
    known = kind in _READ if isinstance(kind, str) else isinstance(part.get("text"), str)
    return not known or _is_more_than_text(part)
