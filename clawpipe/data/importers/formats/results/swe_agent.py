"""Read trajectories of SWE-agent, `.traj`: one object in a file, with the messages in `history`.

    {"environment": ..., "trajectory": [...], "history": [{"role", "content", "thought", "action"}, ...], "info": {"exit_status"}}

A demonstration (`is_demo`) is context. `trajectory` repeats the messages as actions and observations, and stays in `extra`.
"""

from __future__ import annotations

from typing import Any

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.data.importers.fields import Fields, as_list, take_tools
from clawpipe.data.importers.message import read_messages
from clawpipe.data.importers.outcome import take_outcome
from clawpipe.data.importers.record import Conversation, Status, counted, first_request, main_but_muted

_MARKS = ("message_type", "agent", "thought", "action")
_ENDS: dict[str, Status] = {
    "submitted": "completed",
    "exit_cost": "partial",  # its answers are whole
    "exit_context": "truncated",
    "early_exit": "aborted",
}


def is_swe_agent(record: JsonObject) -> bool:
    history = record.get("history")
    if not isinstance(history, list):
        return False
    return "trajectory" in record or any(isinstance(part, dict) and any(name in part for name in _MARKS) for part in history)


def read_swe_agent(record: JsonObject) -> Conversation:
    """Read the trajectory of an attempt.

    Raises:
        RefusedError: the record is not a conversation.
    """
    fields = Fields(record)
    read = read_messages([_message(part) for part in as_list(fields.take("history", list), "history")], "history")
    info = fields.peek("info")
    ended = str(info.get("exit_status") or "") if isinstance(info, dict) else ""
    return Conversation(
        read.messages,
        main_but_muted(read.messages, read.muted),
        _request(read.messages, read.unknown),
        judgements=take_outcome(fields),
        status=_status(ended),
        tools=take_tools(fields),
        extra=fields.rest | ({"messages": read.unknown} if read.unknown else {}),
        unread=read.unread,
        **counted(read.messages, read.failed),
    )


def _status(ended: str) -> Status | None:
    """Return the status; "submitted (exit_cost)" is a submission at the limit, and partial."""
    words = [word for word in _ENDS if word in ended]
    return "partial" if len(words) > 1 else _ENDS[words[0]] if words else None


def _message(part: JsonObject) -> JsonObject:
    """Convert a message to the form of the chat API, with the id of its call; a demonstration has weight 0."""
    answered = part.get("tool_call_ids")
    named = {"tool_call_id": answered[0]} if isinstance(answered, list) and len(answered) == 1 else {}
    kept = {name: value for name, value in part.items() if not (named and name == "tool_call_ids")}
    return kept | named | ({"weight": 0} if part.get("is_demo") is True else {})


def _request(messages: Any, unknown: list[JsonObject]) -> str:
    """Return the first user message that is not part of a demonstration."""
    shown = {part["message"] for part in unknown if part.get("is_demo") is True}
    return first_request([message for place, message in enumerate(messages) if place not in shown] or messages)
