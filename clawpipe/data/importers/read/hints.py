"""Describe records of no known format: their keys, the program that most likely wrote them, and the words that read them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Protocol

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.data.importers.formats.answered import unread_answers
from clawpipe.data.importers.outcome import sounding

_SHOWN = 8  # keys
_NEAR = 0.5  # share of a format's fields
_DEEP = 4  # fields from the record to its messages
_SPEAKERS = ("role", "from", "speaker", "author", "sender", "type", "source", "who", "participant", "name")
_TEXTS = ("content", "value", "text", "message", "body", "parts", "data", "utterance", "msg", "said")
_ASKS = ("prompt", "question", "ask", "message", "query", "instruction", "input", "user", "request", "problem", "task", "source")
_SOUNDS_ASKED = frozenset(("prompt", "question", "query", "instruction", "problem"))
_WRITERS = {  # of records that are no conversations, by keys that stand together in few others
    ("ts", "say"): "what Cline shows its user: its api_conversation_history.json is read",
    (
        "parent_tool_use_id",
        "session_id",
    ): "what Claude Code printed, without the request: its files in ~/.claude/projects are read",
    (
        "subtype",
        "session_id",
        "permissionMode",
    ): "what Claude Code printed, without the request: its files in ~/.claude/projects are read",
    ("type", "item"): "what `codex exec --json` printed, without the request: its files in ~/.codex/sessions are read",
    ("id", "agent", "workspace"): "the state of an OpenHands conversation: its folder events is read",
    ("id", "ground_truth"): "an answer of the Berkeley Function Calling Leaderboard, without its question",
    ("kind", "v"): "a log of changes of VS Code: its chats are read as `Chat: Export Chat` writes them",
    ("results", "versions", "config"): "a summary of an evaluation, without its samples",
}
_COMMON = frozenset(
    (
        *("id", "type", "messages", "content", "input", "output", "prompt", "timestamp", "data", "steps", "state", "chat"),
        *("info", "parentId"),
    )
)
FUNCTION = "--format file.py:NAME reads them by a function of yours"


class Known(Protocol):
    """A format, as far as it counts here."""

    @property
    def name(self) -> str: ...
    @property
    def marks(self) -> tuple[str, ...]: ...
    @property
    def fits(self) -> Callable[[JsonObject], bool]: ...
    @property
    def read(self) -> object | None: ...


def shape_of(record: JsonObject, formats: Iterable[Known] = ()) -> str:
    """Return what a warning says of a record of no known format; equal for records of one form.

    Args:
        formats: the known formats, of which the nearest is named, or that of the records inside the record.
    """
    formats = list(formats)
    shown = [name if len(name) <= 40 else f"{name[:40]}..." for name in list(record)[:_SHOWN]]
    more = f" and {len(record) - _SHOWN} more" if len(record) > _SHOWN else ""
    keys = f"keys: {', '.join(shown)}{more}" if record else "no keys"
    writer = next((name for marks, name in _WRITERS.items() if all(mark in record for mark in marks)), None)
    if writer:
        return f"{keys}; looks like {writer}; {FUNCTION}"
    return "; ".join(filter(None, [keys, _nearest(record, formats), _inside(record, formats) or _words_for(record)]))


def _inside(record: JsonObject, formats: Iterable[Known]) -> str | None:
    """Return the word that reads records of a known format inside a record, as in a page of a web API; None if there are none."""
    lists = ((name, value[0]) for name, value in record.items() if isinstance(value, list) and value)
    alone = [known for known in formats if known.read]
    found = ((name, known) for name, first in lists if isinstance(first, dict) for known in alone if known.fits(first))
    return next((f"try --map each={name}, which holds records of {known.name}" for name, known in found if "." not in name), None)


def _nearest(record: JsonObject, formats: Iterable[Known]) -> str | None:
    """Name the format of which a record has the largest share of fields, and those that it lacks; None if no format is near."""
    shares = [(sum(mark in record for mark in known.marks) / len(known.marks), known) for known in formats if known.marks]
    near = [(share, known) for share, known in shares if share >= _NEAR and any(m in record for m in {*known.marks} - _COMMON)]
    if not near:
        return None
    known = max(near, key=lambda one: one[0])[1]
    lacking = ", ".join(mark for mark in known.marks if mark not in record)
    return f"near to {known.name}, which has {lacking}" if lacking else f"near to {known.name}, but of another shape"


def _words_for(record: JsonObject) -> str:
    """Return the mapping that most likely reads a record, or the general advice."""
    found = next(_listed_messages(record), None)
    if found:
        path, speaker, text = found
        before, _, inner = path.partition(".0.")
        words = [f"--map each={before} --map messages={inner}"] if inner and ".0." not in inner else [f"--map messages={path}"]
        words += [f"--map messages.role={speaker}"] if speaker != "role" else []
        words += [f"--map messages.content={text}"] if text != "content" else []
        return f"try {' '.join(words)}"
    answers = [name for name in unread_answers(record) if isinstance(record[name], str | list | dict)]
    named = (name for name in record if name.lower() in _ASKS)
    asks = next((name for name in (*named, *sounding(record, _SOUNDS_ASKED)) if name not in answers), None)
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
