"""Read logs of Inspect: a whole log (`.json`), and the samples of one (`.eval`, a zip archive).

    {"version", "eval": {"model", "task", "run_id"}, "samples": [{"id", "epoch", "messages", "scores", "output"}]}
    {"id", "epoch", "input", "target", "messages", "output", "scores", ...}

Answers that stood in the input are context. The score is the first scorer's; Inspect's letters count as its own metrics count them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.data.importers.formats.chat import read_chat
from clawpipe.data.importers.record import Conversation
from clawpipe.data.importers.strict_json import RefusedError
from clawpipe.data.importers.values import name_of, object_of, objects_of, text_of, without

_LETTERS = {"C": 1.0, "P": 0.5, "I": 0.0, "N": 0.0}
_ATTACHED = "attachment://"
_BESIDE = ("messages", "events", "attachments", "store", "timelines", "events_data")  # events repeat the messages


def is_inspect(record: JsonObject) -> bool:
    return isinstance(record.get("eval"), dict) and "plan" in record and isinstance(record.get("samples", []), list)


def is_inspect_sample(record: JsonObject) -> bool:
    return {"id", "epoch", "target", "messages", "input"} <= record.keys()


def read_inspect(record: JsonObject) -> Iterator[Conversation]:
    """Yield the conversations of a log.

    Raises:
        RefusedError: no sample holds one; or one of them is no conversation.
    """
    samples = [one for one in objects_of(record.get("samples")) if _answers(one)]
    if not samples:
        raise RefusedError("a log of Inspect without an answer in its samples")
    header = object_of(record["eval"])
    for sample in samples:
        yield from _sample(sample, header)


def read_inspect_sample(record: JsonObject) -> Iterator[Conversation]:
    """Yield the conversation of a sample.

    Raises:
        RefusedError: it is none.
    """
    yield from _sample(record, object_of(record.get("eval")))


def _answers(sample: JsonObject) -> bool:
    return any(message.get("role") == "assistant" for message in objects_of(sample.get("messages")))


def _sample(sample: JsonObject, header: JsonObject) -> Iterator[Conversation]:
    attached = object_of(sample.get("attachments"))
    messages = [_message(message, attached) for message in objects_of(sample.get("messages"))]
    run = text_of(header.get("run_id"))
    names = (run, name_of(sample, "id"), name_of(sample, "epoch"))
    known = {
        "session_id": text_of(sample.get("uuid")) or ("/".join(filter(None, names)) if run else None),
        "model": text_of(object_of(sample.get("output")).get("model")) or text_of(header.get("model")),
        "tools": _tools(sample),
        "score": _score(sample),
        "finish_reason": _end(sample),
    }
    named = {name: value for name, value in known.items() if value is not None}
    export = without(sample, *_BESIDE) | ({"task": header["task"]} if header.get("task") else {})
    for conversation in read_chat(named | {"messages": messages, "export": export}):
        yield replace(conversation, status="partial") if sample.get("limit") and not sample.get("error") else conversation


def _message(message: JsonObject, attached: JsonObject) -> JsonObject:
    """Return a message in the form of the chat API: a call names its function by a text, a tool's answer its error beside it."""
    made = {name: _restored(value, attached) for name, value in message.items() if name not in ("source", "function", "tool_calls")}
    if message.get("role") == "tool":
        made |= {"name": message["function"]} if text_of(message.get("function")) else {}
        error = object_of(message.get("error"))
        return made | ({"content": error.get("message") or ""} if error and not message.get("content") else {})
    calls = [_call(call, attached) for call in objects_of(message.get("tool_calls"))]
    return made | ({"tool_calls": calls} if calls else {}) | ({"weight": 0} if _is_given(message) else {})


def _is_given(message: JsonObject) -> bool:
    return message.get("role") == "assistant" and message.get("source") == "input"


def _call(call: JsonObject, attached: JsonObject) -> JsonObject:
    arguments = _restored(call.get("arguments"), attached)
    function = {"name": call.get("function"), "arguments": arguments}
    return {"id": call.get("id"), "function": object_of(call.get("function")) or function}


def _restored(value: Any, attached: JsonObject) -> Any:
    """Return a value with the texts that the log keeps once and refers to."""
    if isinstance(value, str):
        return attached.get(value.removeprefix(_ATTACHED), value) if value.startswith(_ATTACHED) else value
    if isinstance(value, list):
        return [_restored(part, attached) for part in value]
    return {name: _restored(part, attached) for name, part in value.items()} if isinstance(value, dict) else value


def _tools(sample: JsonObject) -> list[Any] | None:
    """Return the tools on offer, which only the events of the model hold."""
    events = (event.get("tools") for event in objects_of(sample.get("events")) if event.get("event") == "model")
    return next((tools for tools in events if isinstance(tools, list) and tools), None)


def _score(sample: JsonObject) -> float | None:
    first = next(iter(object_of(sample.get("scores")).values()), sample.get("score"))
    value = object_of(first).get("value")
    if isinstance(value, str):
        return _LETTERS.get(value)
    return float(value) if isinstance(value, bool | int | float) else None


def _end(sample: JsonObject) -> str | None:
    """Return why a sample ended: an error, else as its last answer did. At a limit its answers are whole."""
    if sample.get("error"):
        return "error"
    choices = objects_of(object_of(sample.get("output")).get("choices"))
    return text_of(choices[0].get("stop_reason")) if choices else None
