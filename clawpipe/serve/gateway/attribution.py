"""Determine the session, user and turn type of a request.

A client says so in headers or in fields of the body. Else the session is derived from the key, the model that is asked for and the
conversation's beginning, so two conversations never share one session only because nobody named them; and the turn type from how
agents begin turns that no user asked for. What a conversation says can only make its turn a side turn, never a main one.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.data.capture.alarms import DERIVED
from clawpipe.data.capture.records import TurnType
from clawpipe.data.capture.settings import PLAIN, UNASKED, SessionSettings
from clawpipe.data.wire.histories import counts

SESSION_HEADER = "x-session-id"
# Those of agents. Codex's `session-id` is one for a conversation and its sub-agents, each of which is a thread of its own.
_CODEX, _CLAUDE_CODE = ("thread-id", "session-id"), "x-claude-code-session-id"
_OPENCLAW = ("session_id", "x-session-affinity")  # the former is older Codex's, too
_PARENT_HEADERS = ("x-parent-session-id", "x-codex-parent-thread-id")
OWN_FIELDS = ("session_id", "parent_session_id", "turn_type", "session_done")  # of the body; no engine sees them
_TRUE = ("1", "true", "yes", "on")
_SUFFIX = re.compile(r":\d+\Z")  # a counter that OpenClaw adds to its session's id
_ID = re.compile(r"[A-Za-z0-9_@.:+=-]{1,200}")


@dataclass(frozen=True)
class Attribution:
    """The session, parent session, user and type of a turn, and where session and type were found."""

    session: str
    session_from: str
    turn_type: TurnType
    turn_type_from: str
    done: bool
    parent: str | None
    user: str | None


def attribute(
    headers: Mapping[str, str], body: JsonObject, key: str, owner: str | None, settings: SessionSettings = PLAIN
) -> Attribution:
    """Return the session, user and turn type of a request.

    Args:
        headers: by lower-case name.
        body: the whole body; `messages` is a list.
        key: the key's name.
        owner: its owner.
        settings: which turns are main turns.
    """
    user = _text(body.get("user")) or owner
    session, session_from = _session(headers, body, key, user)
    turn_type, turn_type_from = _turn_type(headers, body, settings)
    metadata = _object(body.get("metadata"))
    said = next((given for name in _PARENT_HEADERS if (given := headers.get(name))), None)
    parent = _text(said or body.get("parent_session_id") or metadata.get("parent_session_id"))
    done = str(headers.get("x-session-done") or body.get("session_done") or "").lower() in _TRUE
    return Attribution(session, session_from, turn_type, turn_type_from, done, safe_id(parent) if parent else None, user)


def safe_id(given: str) -> str:
    """Return an id that can be a file's name and a column's value: itself, or a digest of it."""
    given = given.strip()
    if _ID.fullmatch(given) and ".." not in given:
        return given
    return f"id-{hashlib.sha256(given.encode(errors='surrogateescape')).hexdigest()[:32]}"


def _session(headers: Mapping[str, str], body: JsonObject, key: str, user: str | None) -> tuple[str, str]:
    for name in (SESSION_HEADER, *_CODEX, _CLAUDE_CODE, *_OPENCLAW):
        if given := headers.get(name, "").strip():
            return safe_id(_SUFFIX.sub("", given) if name in _OPENCLAW else given), name
    metadata = _object(body.get("metadata"))
    for given, place in ((body.get("session_id"), "session_id"), (metadata.get("session_id"), "metadata")):
        if text := _text(given):
            return safe_id(text), place
    return _derived(body, key, user), DERIVED


def _derived(body: JsonObject, key: str, user: str | None) -> str:
    """Return a session id of the conversation's beginning: all up to the first user message but system prompts, into which agents
    write the time, and which do not count when turns are compared either. Two agents that begin alike ask for two models."""
    messages = [one for one in body["messages"] if counts(_object(one).get("role"))]
    first = next((place for place, one in enumerate(messages) if _object(one).get("role") == "user"), len(messages))
    beginning = orjson.dumps([key, user, body.get("model"), [_said(one) for one in messages[: first + 1]]])
    return f"derived-{hashlib.sha256(beginning).hexdigest()[:32]}"


def _said(message: Any) -> Any:
    """Return role and text of a message, in whichever form the client sends the text; all of a message that is more than text."""
    content = _object(message).get("content")
    parts: list[Any] = content if isinstance(content, list) else [{"type": "text", "text": content}]
    if all(_object(part).get("type") == "text" and isinstance(part.get("text"), str) for part in parts):
        return [_object(message).get("role"), "".join(part["text"] for part in parts)]
    return message


def _turn_type(headers: Mapping[str, str], body: JsonObject, settings: SessionSettings) -> tuple[TurnType, str]:
    for given, place in ((headers.get("x-turn-type"), "x-turn-type"), (body.get("turn_type"), "turn_type")):
        if given:
            return ("main" if settings.is_main(str(given)) else "side"), place
    last = next((one for one in reversed(body["messages"]) if _object(one).get("role") == "user"), {})
    text = _content(last)
    return ("side" if UNASKED.match(text) or settings.is_side(text) else "main"), DERIVED


def _content(message: JsonObject) -> str:
    content = message.get("content")
    if isinstance(content, list):
        return next((text for part in content if (text := _text(_object(part).get("text")))), "")
    return _text(content) or ""


def _object(value: Any) -> JsonObject:
    return value if isinstance(value, dict) else {}


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value.strip() else None
