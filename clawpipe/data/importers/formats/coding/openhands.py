"""Read events of OpenHands: of its SDK (`events/event-*.json`), and of earlier versions (trajectories, `history` of an evaluation).

    {"kind": "MessageEvent" | "ActionEvent" | "ObservationEvent" | ..., "source", "tool_call", "observation", ...}
    {"source", "action": "run", "args": {...}, "tool_call_metadata"}    {"observation": "run", "content", "extras"}
    {"instance_id", "history": [events], "test_result": {"report": {"resolved"}}}

A folder of numbered events is read as one file. Calls of one answer of the model are one message.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.data.importers.formats.chat import read_chat
from clawpipe.data.importers.record import Conversation
from clawpipe.data.importers.turns import Turns
from clawpipe.data.importers.values import name_of, object_of, objects_of, text_of, without
from clawpipe.data.wire.failures import mark_of

_UNSAID = ("agent_state_changed", "null", "recall", "condensation")  # observations that the model does not see as answers
_BESIDE = ("thought", "hidden", "confirmation_state", "is_input", "blocking", "keep_prompt", "security_risk", "task_completed")
_FAILURES = ("AgentErrorEvent", "UserRejectObservation")


def is_openhands(record: JsonObject) -> bool:
    """Whether a record is an event."""
    if isinstance(record.get("kind"), str) and "source" in record and "timestamp" in record:
        return "id" in record or record["kind"].endswith(("Event", "Observation", "Condensation", "Action"))
    return (
        "timestamp" in record
        and "source" in record
        and any(isinstance(record.get(name), str) for name in ("action", "observation"))
    )


def is_openhands_result(record: JsonObject) -> bool:
    history = record.get("history")
    return isinstance(history, list) and bool(history) and any(map(is_openhands, objects_of(history)))


def join_openhands(records: Sequence[JsonObject], session: str) -> Iterator[Conversation]:
    """Yield the conversation of the events in a file or a folder.

    Raises:
        RefusedError: they are not a conversation.
    """
    yield from _read(records, {"session_id": session})


def read_openhands_result(record: JsonObject) -> Iterator[Conversation]:
    """Yield the conversation of an attempt in an evaluation, with the verdict of its tests.

    Raises:
        RefusedError: its events are not a conversation.
    """
    report = object_of(object_of(record.get("test_result")).get("report"))
    resolved = report.get("resolved")
    known: JsonObject = {"success": resolved} if isinstance(resolved, bool) else {}
    model = text_of(object_of(object_of(record.get("metadata")).get("llm_config")).get("model"))
    known |= {"session_id": name_of(record, "instance_id"), "model": model, "export": without(record, "history", "instance_id")}
    if record.get("error"):
        known["finish_reason"] = "error"
    yield from _read(objects_of(record["history"]), known)


def _read(events: Iterable[JsonObject], known: JsonObject) -> Iterator[Conversation]:
    turns, others, tools = Turns(), list[JsonObject](), list[Any]()
    answered = None  # the answer of the model that an event is part of
    for event in events:
        if event.get("llm_response_id") != answered:
            answered = event.get("llm_response_id")
            turns.close()
        tools = tools or _tools(event)
        if not _add(turns, event):
            others.append(event)
    row = {name: value for name, value in known.items() if value is not None} | ({"tools": tools} if tools else {})
    yield from read_chat(row | {"messages": turns.messages} | ({"events": others} if others else {}))


def _tools(event: JsonObject) -> list[Any]:
    given = event.get("tools", object_of(event.get("args")).get("tools"))
    return given if isinstance(given, list) else []


def _add(turns: Turns, event: JsonObject) -> bool:
    """Add what an event says; False if nobody says it."""
    adders = {
        "SystemPromptEvent": lambda: turns.say("system", [object_of(event.get("system_prompt"))]),
        "MessageEvent": lambda: _add_message(turns, event),
        "ActionEvent": lambda: _add_action(turns, event),
        "ObservationEvent": lambda: _add_observation(turns, event),
        **dict.fromkeys(_FAILURES, lambda: _add_failure(turns, event)),
    }
    add = adders.get(str(event.get("kind")))
    if add is None:
        return "kind" not in event and _add_earlier(turns, event)
    add()
    return True


def _add_message(turns: Turns, event: JsonObject) -> None:
    message = object_of(event.get("llm_message"))
    content = message.get("content")
    listed = content if isinstance(content, list) else [content]
    said = [{"type": "text", "text": part} if isinstance(part, str) else part for part in listed if part]
    if message.get("role") != "assistant":
        turns.say(str(message.get("role")), [*said, *objects_of(event.get("extended_content"))])
        return
    turns.think(message.get("reasoning_content"))
    turns.say("assistant", said)
    if isinstance(message.get("tool_calls"), list):
        for call in objects_of(message["tool_calls"]):
            turns.call(call.get("name"), call.get("arguments"), call.get("id"))


def _add_action(turns: Turns, event: JsonObject) -> None:
    call = object_of(event.get("tool_call"))
    turns.think(event.get("reasoning_content"))
    turns.say("assistant", objects_of(event.get("thought")))
    called = call if call else {"name": event.get("tool_name"), "arguments": without(object_of(event.get("action")), "kind")}
    called = object_of(called.get("function")) or called
    turns.call(called.get("name"), called.get("arguments"), event.get("tool_call_id"))


def _add_observation(turns: Turns, event: JsonObject) -> None:
    observation = object_of(event.get("observation"))
    said = observation.get("content", observation.get("output", ""))
    turns.answer(said, event.get("tool_call_id"), event.get("tool_name"), failed=mark_of(observation))


def _add_failure(turns: Turns, event: JsonObject) -> None:
    said = text_of(event.get("error")) or text_of(event.get("rejection_reason")) or "rejected by the user"
    turns.answer(said, event.get("tool_call_id"), event.get("tool_name"), failed=True)


def _add_earlier(turns: Turns, event: JsonObject) -> bool:
    """Add an event of a version before the SDK."""
    if isinstance(event.get("observation"), str):
        return _add_earlier_answer(turns, event)
    args, action = object_of(event.get("args")), str(event.get("action"))
    said = text_of(args.get("content")) or text_of(event.get("message")) or ""
    if action == "system" or (action == "message" and event.get("source") != "agent"):
        turns.say("system" if action == "system" else "user", said)
    elif event.get("source") != "agent" or action in _UNSAID:
        return False
    elif action == "message":
        turns.say("assistant", said)
    else:
        _add_earlier_call(turns, event, args, action)
    return True


def _add_earlier_call(turns: Turns, event: JsonObject, args: JsonObject, action: str) -> None:
    """Add a call as the model spelled it, where the event keeps that, else as it was carried out."""
    metadata = object_of(event.get("tool_call_metadata"))
    choices = objects_of(object_of(metadata.get("model_response")).get("choices"))
    message = object_of(choices[0].get("message")) if choices else {}
    spelled = [call for call in objects_of(message.get("tool_calls")) if call.get("id") == metadata.get("tool_call_id")]
    function = object_of(spelled[0].get("function")) if spelled else {}
    if thought := text_of(args.get("thought")):
        turns.say("assistant", thought)
    name = function.get("name") or metadata.get("function_name") or action
    turns.call(name, function.get("arguments", without(args, *_BESIDE)), metadata.get("tool_call_id"))


def _add_earlier_answer(turns: Turns, event: JsonObject) -> bool:
    metadata = object_of(event.get("tool_call_metadata"))
    if event["observation"] in _UNSAID:
        return False
    success = event.get("success")
    failed = True if event["observation"] == "error" else not success if isinstance(success, bool) else None
    name = text_of(metadata.get("function_name"))
    turns.answer(text_of(event.get("content")) or "", metadata.get("tool_call_id"), name, failed=failed)
    return True
