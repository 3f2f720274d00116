"""Trajectories of SWE-agent, `.traj`: one object a file, whose `history` is what the model saw and read.

    {"environment": ..., "trajectory": [...], "history": [{"role", "content", "thought", "action"}, ...], "info": {"exit_status"}}

A demonstration (`is_demo`) is context. `trajectory` says the same once more, by action and observation, and stays in `extra`.
"""

from __future__ import annotations

from typing import Any

from clawpipe.importers.message import read_messages
from clawpipe.importers.outcome import take_outcome
from clawpipe.importers.record import Conversation, Fields, Status, as_list, counted, first_request, main_but_muted, take_tools

_MARKS = ("message_type", "agent", "thought", "action")
_ENDS: dict[str, Status] = {
    "submitted": "completed",
    "exit_cost": "truncated",
    "exit_context": "truncated",
    "early_exit": "aborted",
}


def is_swe_agent(record: dict[str, Any]) -> bool:
    history = record.get("history")
    if not isinstance(history, list):
        return False
    return "trajectory" in record or any(isinstance(part, dict) and any(name in part for name in _MARKS) for part in history)


def read_swe_agent(record: dict[str, Any]) -> Conversation:
    """The trajectory of an attempt.

    Raises:
        RefusedError: it is no conversation.
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
    """How it ended; "submitted (exit_cost)" is what was handed in as the limit was met."""
    words = [word for word in _ENDS if word in ended]
    return "partial" if len(words) > 1 else _ENDS[words[0]] if words else None


def _message(part: dict[str, Any]) -> dict[str, Any]:
    """A message in the form of the chat API: the call that it answers by its own name, no weight for a demonstration."""
    answered = part.get("tool_call_ids")
    named = {"tool_call_id": answered[0]} if isinstance(answered, list) and len(answered) == 1 else {}
    kept = {name: value for name, value in part.items() if not (named and name == "tool_call_ids")}
    return kept | named | ({"weight": 0} if part.get("is_demo") is True else {})


def _request(messages: Any, unknown: list[dict[str, Any]]) -> str:
    """The first request that is no demonstration."""
    shown = {part["message"] for part in unknown if part.get("is_demo") is True}
    return first_request([message for place, message in enumerate(messages) if place not in shown] or messages)
