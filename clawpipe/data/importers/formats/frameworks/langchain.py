"""Read messages of LangChain and LangGraph, in the three forms in which they are written.

    {"messages": [{"type": "human" | "ai" | "tool" | "system", "content", "tool_calls"}]}        `model_dump`, a state of LangGraph
    {"messages": [{"type": "ai", "data": {...}}]}                                                `messages_to_dict`
    {"messages": [{"lc": 1, "type": "constructor", "id": [..., "AIMessage"], "kwargs": {...}}]}  `dumpd`

A thread's state has its messages in `values`. A list of messages alone is a transcript.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from typing import Any

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.data.importers.formats.chat import read_chat
from clawpipe.data.importers.names import user_of_messages
from clawpipe.data.importers.record import Conversation
from clawpipe.data.importers.values import name_of, object_of, objects_of, text_of, without

_ROLES = {"human": "user", "ai": "assistant", "system": "system", "tool": "tool", "developer": "system"} | {
    "AIMessageChunk": "assistant",
    "HumanMessageChunk": "user",
    "SystemMessageChunk": "system",
    "ToolMessageChunk": "tool",
}
_CLASSES = {
    "HumanMessage": "human",
    "AIMessage": "ai",
    "AIMessageChunk": "ai",
    "SystemMessage": "system",
    "ToolMessage": "tool",
    "ChatMessage": "chat",
}
_ENDS = ("finish_reason", "stop_reason", "done_reason")
_BLOCKS = ("tool_use", "tool_call", "function_call")  # parts of a content with a call
_SESSIONS = ("thread_id", "session_id", "conversation_id")


def is_message(value: Any) -> bool:
    """Whether a value is a message in one of the three forms."""
    plain = _plain(object_of(value))
    return (
        plain.get("type") in (*_ROLES, "chat") and "content" in plain and "source" not in plain and "role" not in object_of(value)
    )


def message_of(value: Any) -> JsonObject:
    """Return a message in the form of the chat API."""
    plain = _plain(object_of(value))
    metadata, beside = object_of(plain.get("response_metadata")), object_of(plain.get("additional_kwargs"))
    role = plain.get("role") if plain["type"] == "chat" else _ROLES[plain["type"]]
    made: JsonObject = {"role": role, "content": _said(plain) if role == "assistant" else plain["content"]}
    if role == "assistant":
        made |= _calls(plain, beside)
        ended = next((text for name in _ENDS if (text := text_of(metadata.get(name)))), None)
        made |= {"finish_reason": ended} if ended else {}
    kept = ("tool_call_id", "status", "name")
    return made | {name: plain[name] for name in kept if plain.get(name) and (role == "tool" or name == "name")}


def _plain(value: JsonObject) -> JsonObject:
    """Return the fields of a message, from any of its forms."""
    if value.get("lc") and isinstance(value.get("kwargs"), dict):
        names = value.get("id")
        kind = _CLASSES.get(str(names[-1])) if isinstance(names, list) and names else None
        return {"type": kind} | without(value["kwargs"], "type")
    data = value.get("data")
    return {"type": value.get("type")} | without(data, "type") if isinstance(data, dict) and "content" in data else value


def _calls(plain: JsonObject, beside: JsonObject) -> JsonObject:
    """Return the calls of a message, valid ones and others; those of an older version stand in `additional_kwargs`."""
    made = _listed_calls(plain)
    reasoning = text_of(beside.get("reasoning_content"))
    thought = {"reasoning_content": reasoning} if reasoning else {}
    if made:
        return {"tool_calls": made} | thought
    return {name: beside[name] for name in ("tool_calls", "function_call") if beside.get(name)} | thought


def _listed_calls(plain: JsonObject) -> list[JsonObject]:
    return [*objects_of(plain.get("tool_calls")), *objects_of(plain.get("invalid_tool_calls"))]


def _said(plain: JsonObject) -> Any:
    """Return the content of a message without the blocks of Anthropic or Bedrock that repeat its calls: of a reply that was
    streamed, these have empty arguments."""
    named = {call_id for call in _listed_calls(plain) if (call_id := text_of(call.get("id")))}
    content = plain["content"]
    return [part for part in content if not _repeats(part, named)] if named and isinstance(content, list) else content


def _repeats(part: Any, named: Container[str | None]) -> bool:
    said = object_of(part)
    return said.get("type") in _BLOCKS and any(text_of(said.get(name)) in named for name in ("id", "call_id"))


def is_langchain(record: JsonObject) -> bool:
    listed = _listed(record)
    return bool(listed) and all(map(is_message, listed))


def read_langchain(record: JsonObject) -> list[Conversation]:
    """Read the messages of a state.

    Raises:
        RefusedError: they are not a conversation.
    """
    places = [object_of(record.get(name)) for name in ("metadata", "config")]
    configured = [object_of(place.get("configurable")) for place in places]
    names = (name_of(place, *_SESSIONS) for place in (record, *places, *configured))
    known = {"session_id": next((name for name in names if name), None), "user": name_of(record, "user_id")}
    rest = without(record, "messages", *_SESSIONS, "user_id")
    return read_chat(
        {"messages": [message_of(one) for one in _listed(record)]} | {k: v for k, v in known.items() if v} | _kept(rest)
    )


def _kept(rest: JsonObject) -> JsonObject:
    values = without(object_of(rest.get("values")), "messages")
    kept = without(rest, "values") | ({"values": values} if values else {})
    return {"export": kept} if kept else {}


def _listed(record: JsonObject) -> list[Any]:
    given = record.get("messages", object_of(record.get("values")).get("messages"))
    return given if isinstance(given, list) else []


def is_langchain_line(record: JsonObject) -> bool:
    """Whether a record is one message."""
    return is_message(record)


def join_langchain(records: Sequence[JsonObject], session: str) -> Iterator[Conversation]:
    """Yield the conversation of the messages in a file, or of one session in a table.

    Raises:
        RefusedError: they are not a conversation, or not of one session and user.
    """
    known = {"session_id": session, "user": user_of_messages(records)}
    yield from read_chat({"messages": [message_of(record) for record in records]} | known)
