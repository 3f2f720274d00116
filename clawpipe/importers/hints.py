"""Describe records of no known format: their keys, the program that most likely wrote them, and the words that read them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from clawpipe.importers.answered import unread_answers
from clawpipe.json_types import JsonObject

_SHOWN = 8  # keys
_DEEP = 3  # fields from the record to its messages
_SPEAKERS = ("role", "from", "speaker", "author", "sender", "type", "source", "name")
_TEXTS = ("content", "value", "text", "message", "body", "parts", "data")
_ASKS = ("prompt", "question", "query", "instruction", "input", "user", "request", "problem", "task", "source")
_WRITERS = {  # by keys that stand together in records of few others
    ("samples", "eval"): "an Inspect log",
    ("mapping", "current_node"): "an export of ChatGPT",
    ("chat_messages", "uuid"): "an export of Claude.ai",
    ("run_type", "inputs"): "a run of LangSmith",
    ("request_body", "response_body"): "a log of Helicone",
    ("span_attributes", "root_span_id"): "a span of Braintrust",
    ("action", "observation"): "a step of OpenHands",
    ("ts", "say"): "what Cline shows its user: its api_conversation_history.json is read",
    ("llm_context", "agents"): "a state of AutoGen",
    ("steps", "schema_version"): "a trajectory of ATIF",
    ("question", "function"): "an item of the Berkeley Function Calling Leaderboard, without an answer",
    ("requests", "responderUsername"): "a chat of Copilot",
    ("sessionId", "contents"): "a chat of Gemini CLI",
}
FUNCTION = "--format file.py:NAME reads them by a function of yours"


def shape_of(record: JsonObject) -> str:
    """Return what a warning says of a record of no known format; equal for records of one form."""
    shown = [name if len(name) <= 40 else f"{name[:40]}..." for name in list(record)[:_SHOWN]]
    more = f" and {len(record) - _SHOWN} more" if len(record) > _SHOWN else ""
    keys = f"keys: {', '.join(shown)}{more}" if record else "no keys"
    writer = next((name for marks, name in _WRITERS.items() if all(mark in record for mark in marks)), None)
    return "; ".join(filter(None, [keys, writer and f"looks like {writer}", _words_for(record)]))


def _words_for(record: JsonObject) -> str:
    """Return the mapping that most likely reads a record, or the general advice."""
    found = next(_listed_messages(record), None)
    if found:
        path, speaker, text = found
        words = [f"--map messages={path}"]
        words += [f"--map messages.role={speaker}"] if speaker != "role" else []
        words += [f"--map messages.content={text}"] if text != "content" else []
        return f"try {' '.join(words)}"
    answers = [name for name in unread_answers(record) if isinstance(record[name], str | list | dict)]
    asks = next((name for name in record if name.lower() in _ASKS and name not in answers), None)
    if asks and answers:
        return f"try --map prompt={asks} --map completion={answers[0]}"
    return f"--map messages=PATH, or prompt= and completion=, says where a conversation is; {FUNCTION}"


def _listed_messages(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, str, str]]:
    """Yield the paths to lists of messages, with the names of their speakers and texts."""
    if isinstance(value, list) and path and (names := _names_in(value)):
        yield ".".join(path), *names
    inner = value.items() if isinstance(value, dict) else enumerate(value[:1]) if isinstance(value, list) else ()
    for name, part in inner:
        if len(path) < _DEEP and isinstance(part, dict | list) and "." not in str(name):
            yield from _listed_messages(part, (*path, str(name)))


def _names_in(listed: list[Any]) -> tuple[str, str] | None:
    """Return the names of the fields with the speaker and the text of a list of messages; None for any other list."""
    if not listed or not all(isinstance(part, dict) for part in listed):
        return None
    speaker = next((name for name in _SPEAKERS if all(isinstance(part.get(name), str) for part in listed)), None)
    text = next((name for name in _TEXTS if all(isinstance(part.get(name), str | list) for part in listed)), None)
    return (speaker, text) if speaker and text else None
