"""Read trajectories of SWE-agent, `.traj`, and of mini-SWE-agent, `.traj.json`: one object in a file.

    {"environment": ..., "trajectory": [...], "history": [{"role", "content", "thought", "action"}, ...], "info": {"exit_status"}}

    {"trajectory_format": "mini-swe-agent-1.1", "messages": [...], "info": {"exit_status", "config"}, "instance_id"}

A demonstration (`is_demo`) is context. `trajectory` repeats the messages as actions and observations, and stays in `extra`.
mini-SWE-agent ends with a message of the role `exit`, which nobody says.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.data.importers.fields import Fields, as_list, take_tools
from clawpipe.data.importers.formats.chat import read_chat
from clawpipe.data.importers.message import read_messages
from clawpipe.data.importers.outcome import take_outcome
from clawpipe.data.importers.record import Conversation, Status, counted, first_request, main_but_muted
from clawpipe.data.importers.values import name_of, object_of, text_of, without

_MARKS = ("message_type", "agent", "thought", "action")
_ENDS: dict[str, Status] = {
    "submitted": "completed",
    "exit_cost": "partial",  # its answers are whole
    "exit_context": "truncated",
    "early_exit": "aborted",
}
_MINI = "mini-swe-agent"
_MINI_ENDS: dict[str, Status] = {"Submitted": "completed", "LimitsExceeded": "partial"}


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


def is_mini_swe_agent(record: JsonObject) -> bool:
    return str(record.get("trajectory_format")).startswith(_MINI) and isinstance(record.get("messages"), list)


def read_mini_swe_agent(record: JsonObject) -> Iterator[Conversation]:
    """Yield the conversation of an attempt of mini-SWE-agent.

    Raises:
        RefusedError: the record is not a conversation.
    """
    listed = [message for message in as_list(record["messages"], "messages") if message.get("role") != "exit"]
    info = object_of(record.get("info"))
    model = text_of(object_of(object_of(info.get("config")).get("model")).get("model_name"))
    known = {"session_id": name_of(record, "instance_id"), "model": model}
    rest = without(record, "messages", "instance_id")
    ended = text_of(info.get("exit_status"))
    for conversation in read_chat({name: value for name, value in known.items() if value} | {"messages": listed, "export": rest}):
        yield replace(conversation, status=_MINI_ENDS.get(ended, "aborted") if ended else None)
