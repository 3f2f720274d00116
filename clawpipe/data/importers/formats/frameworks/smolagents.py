"""Read steps of smolagents: `agent.memory.get_full_steps()` as an array, and the `steps` of a run's result.

    {"system_prompt"}   {"task"}   {"step_number", "model_output", "tool_calls", "code_action", "observations", "error"}

The answer of a step is what the model wrote, in which a code agent's action is a block of code. What came of it is the user's next
message, or the result of its calls where the model made these by the API.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.data.importers.formats.chat import read_chat
from clawpipe.data.importers.record import Conversation
from clawpipe.data.importers.turns import Turns
from clawpipe.data.importers.values import object_of, objects_of, text_of, without

_STEP = ("step_number", "model_output", "model_output_message", "observations", "code_action")


def is_smolagents_step(record: JsonObject) -> bool:
    names = record.keys()
    is_plan = "plan" in names and "model_output_message" in names
    return (
        names in ({"task", "task_images"}, {"system_prompt"})
        or is_plan
        or ("step_number" in names and any(name in names for name in _STEP[1:]))
    )


def is_smolagents(record: JsonObject) -> bool:
    steps = objects_of(record.get("steps"))
    return bool(steps) and all(map(is_smolagents_step, steps)) and any("step_number" in step for step in steps)


def read_smolagents(record: JsonObject) -> Iterator[Conversation]:
    """Yield the conversation of a run.

    Raises:
        RefusedError: its steps are not a conversation.
    """
    for conversation in _read(objects_of(record["steps"]), {"export": without(record, "steps")}):
        yield replace(conversation, status="partial") if record.get("state") == "max_steps_error" else conversation


def join_smolagents(records: Sequence[JsonObject], session: str) -> Iterator[Conversation]:
    """Yield the conversation of the steps in a file.

    Raises:
        RefusedError: they are not a conversation.
    """
    yield from _read(records, {"session_id": session})


def _read(steps: Sequence[JsonObject], known: JsonObject) -> Iterator[Conversation]:
    turns = Turns()
    for step in steps:
        if system := text_of(step.get("system_prompt")):
            turns.say("system", system)
        elif "task" in step:
            turns.say("user", text_of(step["task"]) or "")
        else:
            _add_step(turns, step)
    yield from read_chat(known | {"messages": turns.messages})


def _add_step(turns: Turns, step: JsonObject) -> None:
    turns.close()
    message = object_of(step.get("model_output_message"))
    calls = objects_of(message.get("tool_calls"))
    said = step.get("model_output")
    turns.say("assistant", said if isinstance(said, str) else objects_of(said) or text_of(message.get("content")) or "")
    for call in calls:
        function = object_of(call.get("function"))
        turns.call(function.get("name"), function.get("arguments"), call.get("id"))
    _add_outcome(turns, step, calls)


def _add_outcome(turns: Turns, step: JsonObject, calls: list[JsonObject]) -> None:
    error = object_of(step.get("error"))
    heard = "\n".join(text for text in (text_of(step.get("observations")), text_of(error.get("message"))) if text)
    if calls and (heard or not step.get("is_final_answer")):
        for call in calls[:1]:
            turns.answer(heard, call.get("id"), object_of(call.get("function")).get("name"), failed=True if error else None)
        for call in calls[1:]:
            turns.answer("", call.get("id"), object_of(call.get("function")).get("name"))
    elif heard and not step.get("is_final_answer"):
        turns.say("user", heard)
