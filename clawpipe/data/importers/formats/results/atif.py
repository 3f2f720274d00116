"""Read trajectories of Harbor and others in the Agent Trajectory Interchange Format (ATIF), one object in a file.

    {"schema_version": "ATIF-v1.x", "session_id", "agent": {"name", "model_name", "tool_definitions"}, "steps": [
        {"step_id", "source": "system" | "user" | "agent", "message", "reasoning_content", "tool_calls", "observation"}]}

Steps that were copied from an earlier trajectory (`is_copied_context`) are context. Token ids in `metrics` stay in `extra`.
"""

from __future__ import annotations

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.data.importers.formats.chats.tree import read_export
from clawpipe.data.importers.record import Conversation
from clawpipe.data.importers.turns import Turns
from clawpipe.data.importers.values import name_of, object_of, objects_of, text_of, without


def is_atif(record: JsonObject) -> bool:
    version = record.get("schema_version")
    return isinstance(version, str) and version.startswith("ATIF") and isinstance(record.get("steps"), list)


def read_atif(record: JsonObject) -> list[Conversation]:
    """Read a trajectory.

    Raises:
        RefusedError: it is not a conversation.
    """
    turns, agent = Turns(), object_of(record.get("agent"))
    for step in objects_of(record["steps"]):
        if step.get("source") == "agent":
            _add_reply(turns, step)
        else:
            turns.say("system" if step.get("source") == "system" else "user", step.get("message") or "")
    metrics = [
        {"step_id": step.get("step_id")} | step["metrics"] for step in objects_of(record["steps"]) if object_of(step.get("metrics"))
    ]
    known = {"session_id": name_of(record, "session_id", "trajectory_id"), "model": text_of(agent.get("model_name"))}
    if isinstance(agent.get("tool_definitions"), list):
        known["tools"] = agent["tool_definitions"]
    return read_export(turns, known, without(record, "steps", "session_id") | {"metrics": metrics})


def _add_reply(turns: Turns, step: JsonObject) -> None:
    turns.close()
    turns.think(step.get("reasoning_content"))
    message = step.get("message") or ""
    turns.say("assistant", message, **({"weight": 0} if step.get("is_copied_context") is True else {}))
    calls = objects_of(step.get("tool_calls"))
    for call in calls:
        turns.call(call.get("function_name"), call.get("arguments") or {}, call.get("tool_call_id"))
    names = {text_of(call.get("tool_call_id")): text_of(call.get("function_name")) for call in calls}
    for result in objects_of(object_of(step.get("observation")).get("results")):
        _add_result(turns, result, names, called=bool(calls))


def _add_result(turns: Turns, result: JsonObject, names: dict[str | None, str | None], *, called: bool) -> None:
    """Add an answer of a tool; without a call it is what the terminal showed, which the agent reads as the user's message."""
    said = result.get("content") or ""
    if called:
        call_id = text_of(result.get("source_call_id"))
        turns.answer(said, call_id, names.get(call_id))
    else:
        turns.say("user", said)
