"""Read sessions of OpenCode, as `opencode export` writes them: one object in a file.

    {"info": {"id", "directory", "title"}, "messages": [{"info": {"role", "modelID", "finish", "error"}, "parts": [...]}]}
    {"type": "text" | "reasoning", "text"}   {"type": "tool", "callID", "tool", "state": {"status", "input", "output", "error"}}

An answer has a part for each step; calls of one step are made side by side. Texts that OpenCode shows and does not send (`ignored`)
are left out. A summary is context.
"""

from __future__ import annotations

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.data.importers.formats.chats.tree import read_export
from clawpipe.data.importers.record import Conversation
from clawpipe.data.importers.turns import Turns
from clawpipe.data.importers.values import name_of, object_of, objects_of, text_of, without

_UNSAID = ("snapshot", "patch", "agent", "retry", "compaction", "subtask")  # parts of the program itself
_STEPS = ("step-start", "step-finish")
_DONE = ("completed", "error")
_SAYS_NOTHING = ("unknown", "other")  # ends of which the engine did not say why


def is_opencode(record: JsonObject) -> bool:
    listed = objects_of(record.get("messages"))
    return isinstance(record.get("info"), dict) and bool(listed) and all({"info", "parts"} <= one.keys() for one in listed)


def read_opencode(record: JsonObject) -> list[Conversation]:
    """Read a session.

    Raises:
        RefusedError: it is not a conversation.
    """
    turns, models = Turns(), list[str]()
    for message in objects_of(record["messages"]):
        info, parts = object_of(message["info"]), objects_of(message["parts"])
        if info.get("role") == "assistant":
            _add_reply(turns, info, parts)
            models += [model] if (model := text_of(info.get("modelID"))) else []
        elif said := [_part(part) for part in parts if _is_sent(part)]:
            turns.say("user", said)
    info = object_of(record["info"])
    known = {"session_id": name_of(info, "id"), "model": models[0] if models else None}
    return read_export(turns, known, without(record, "messages", "info") | {"info": without(info, "id")})


def _is_sent(part: JsonObject) -> bool:
    return part.get("ignored") is not True and part.get("type") not in (*_UNSAID, *_STEPS)


def _part(part: JsonObject) -> JsonObject:
    """Return a part of a request: its text, or a file, which is none."""
    return {"type": "text", "text": part.get("text") or ""} if part.get("type") == "text" else part


def _add_reply(turns: Turns, info: JsonObject, parts: list[JsonObject]) -> None:
    calls = list[JsonObject]()
    turns.close()
    for part in parts:
        kind = part.get("type")
        if kind == "tool":
            calls.append(part)
            turns.call(part.get("tool"), object_of(part.get("state")).get("input") or {}, part.get("callID"))
            continue
        _answer(turns, calls)
        if kind == "step-start":
            turns.close()
        elif kind == "reasoning":
            turns.think(part.get("text"))
        elif kind == "text" and _is_sent(part):
            turns.say("assistant", text_of(part.get("text")) or "")
    _end(turns, info)
    _answer(turns, calls)


def _answer(turns: Turns, calls: list[JsonObject]) -> None:
    """Add the results of the calls of a step, which ends with them."""
    for part in calls:
        state = object_of(part.get("state"))
        if state.get("status") in _DONE:
            failed = state["status"] == "error"
            turns.answer(state.get("error" if failed else "output") or "", part.get("callID"), part.get("tool"), failed=failed)
    calls.clear()


def _end(turns: Turns, info: JsonObject) -> None:
    """Mark why an answer ended, and one that is no answer to anybody."""
    error = object_of(info.get("error"))
    reason = text_of(error.get("name")) or text_of(info.get("finish"))
    if reason and reason not in _SAYS_NOTHING:
        turns.mark(finish_reason=reason)
    if info.get("summary") is True:
        turns.mark(weight=0)
