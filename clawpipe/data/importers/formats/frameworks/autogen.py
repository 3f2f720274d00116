"""Read messages of AutoGen: results of teams, states of agents, and messages alone.

    {"messages": [{"source": "user", "type": "TextMessage", "content"}, {"type": "ToolCallRequestEvent", ...}], "stop_reason"}
    {"type": "AssistantAgentState", "llm_context": {"messages": [{"type": "UserMessage" | "AssistantMessage" | ...}]}}
    {"type": "TeamState", "agent_states": {NAME: {"agent_state": {...}}}}

A state holds what each agent was told and said, and becomes a conversation for each. In a result the messages of all agents but the
user stand in one row, as they were said, each a turn of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.data.importers.formats.chat import read_chat
from clawpipe.data.importers.record import Conversation
from clawpipe.data.importers.strict_json import RefusedError
from clawpipe.data.importers.turns import Turns
from clawpipe.data.importers.values import object_of, objects_of, text_of, without
from clawpipe.data.wire.failures import mark_of

_SAID = ("TextMessage", "MultiModalMessage", "StopMessage", "HandoffMessage", "ToolCallSummaryMessage", "StructuredMessage")
_USERS = ("user", "user_proxy", "human")
_LIMITS = ("maximum number of", "token usage limit", "timeout")


def is_autogen(record: JsonObject) -> bool:
    listed = objects_of(record.get("messages"))
    is_result = bool(listed) and all("source" in one and "type" in one and "content" in one for one in listed)
    return is_result or bool(list(_contexts(record, "")))


def read_autogen(record: JsonObject) -> Iterator[Conversation]:
    """Yield the conversation of a result, or one for each agent of a state.

    Raises:
        RefusedError: nobody asked or answered.
    """
    listed = objects_of(record.get("messages"))
    if listed:
        yield from _of_result(record, listed)
        return
    found = [one for name, context in _contexts(record, "") for one in _of_context(name, context)]
    if not found:
        raise RefusedError("a state of AutoGen in which no agent answered")
    yield from found


def _contexts(state: JsonObject, name: str) -> Iterator[tuple[str, list[JsonObject]]]:
    """Yield the context of each agent in a state, with the agent's name."""
    messages = objects_of(object_of(state.get("llm_context")).get("messages"))
    if messages:
        yield name, messages
    states = object_of(state.get("agent_states"))
    for inner, held in states.items():
        yield from _contexts(object_of(held), inner)
    if isinstance(state.get("agent_state"), dict):
        yield from _contexts(state["agent_state"], name)


def _of_context(name: str, messages: list[JsonObject]) -> list[Conversation]:
    turns = Turns()
    for message in messages:
        _add(turns, message)
    if not any(message["role"] == "assistant" for message in turns.messages):
        return []
    return read_chat({"messages": turns.messages} | ({"agent": name} if name else {}))


def _of_result(record: JsonObject, listed: list[JsonObject]) -> list[Conversation]:
    turns, speaker = Turns(), None
    for message in listed:
        if message.get("source") != speaker:  # another agent speaks
            speaker = message.get("source")
            turns.close()
        _add(turns, message)
    reason = (text_of(record.get("stop_reason")) or "").lower()
    ended = {"finish_reason": "error"} if reason.startswith("error") else {}
    rest = without(record, "messages")
    made = read_chat({"messages": turns.messages} | ended | ({"export": rest} if rest else {}))
    return [replace(one, status="partial") if any(word in reason for word in _LIMITS) else one for one in made]


def _add(turns: Turns, message: JsonObject) -> None:
    kind, content = message.get("type"), message.get("content")
    if kind == "SystemMessage":
        turns.say("system", content)
    elif kind in ("UserMessage", *_SAID) and (kind == "UserMessage" or message.get("source") in _USERS):
        turns.say("user", _parts(content))
    elif kind in ("AssistantMessage", "ToolCallRequestEvent", *_SAID, "ThoughtEvent"):
        _add_reply(turns, message)
    elif kind in ("FunctionExecutionResultMessage", "ToolCallExecutionEvent"):
        for result in objects_of(content):
            turns.answer(str(result.get("content") or ""), result.get("call_id"), result.get("name"), failed=mark_of(result))


def _add_reply(turns: Turns, message: JsonObject) -> None:
    content = message.get("content")
    turns.think(content if message["type"] == "ThoughtEvent" else message.get("thought"))
    if message["type"] == "ThoughtEvent":
        return
    if isinstance(content, list) and all("arguments" in call for call in objects_of(content)):
        for call in objects_of(content):
            turns.call(call.get("name"), call.get("arguments"), call.get("id"))
    elif message["type"] != "ToolCallSummaryMessage":  # which repeats the results
        turns.say("assistant", _parts(content))


def _parts(content: Any) -> Any:
    """Return a content; pictures in it as parts that are no text."""
    if not isinstance(content, list):
        return content if isinstance(content, str) else [] if content is None else [{"type": "structured", "value": str(content)}]
    return [part if isinstance(part, str) else {"type": "image"} | object_of(part) for part in content]
