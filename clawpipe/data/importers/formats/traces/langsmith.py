"""Read runs of LangSmith, as its bulk export and `client.list_runs` give them.

    {"id", "run_type": "llm" | "chain" | ..., "inputs": {"messages"}, "outputs": {"generations"}, "extra": {"metadata"}}

A run of another kind than `llm` is read where its output holds messages, as LangGraph's root does. Its calls are runs of their own;
where they are recorded it repeats them, and is left out.
"""

from __future__ import annotations

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.data.importers.formats.frameworks.langchain import is_message, message_of
from clawpipe.data.importers.formats.traces.sides import of_trace, read_log, read_sides
from clawpipe.data.importers.record import Conversation
from clawpipe.data.importers.strict_json import RefusedError
from clawpipe.data.importers.values import name_of, object_of, text_of, unspelled, without

_THREADS = ("thread_id", "session_id", "conversation_id")
_USERS = ("user_id", "user", "langsmith_user")


def is_langsmith(record: JsonObject) -> bool:
    return isinstance(record.get("run_type"), str) and "inputs" in record and "outputs" in record


def read_langsmith(record: JsonObject) -> list[Conversation]:
    """Read a run.

    Raises:
        RefusedError: it failed, or is no conversation.
    """
    if record.get("error"):
        raise RefusedError("a LangSmith run that failed")
    extra = object_of(record.get("extra"))
    metadata = object_of(extra.get("metadata"))
    params = object_of(extra.get("invocation_params"))
    known = {
        "session_id": name_of(metadata, *_THREADS),
        "user": name_of(metadata, *_USERS),
        "model": text_of(metadata.get("ls_model_name")) or text_of(params.get("model")),
        "tools": params.get("tools"),
    }
    rest, is_call = without(record, "inputs", "outputs"), record["run_type"] == "llm"
    sides = record["inputs"], record["outputs"]
    found = read_sides("a LangSmith run", *sides, known, rest) if is_call else _whole(object_of(record["outputs"]), known, rest)
    return of_trace(found, name_of(record, "trace_id"), wraps=not is_call)


def _whole(outputs: JsonObject, known: JsonObject, rest: JsonObject) -> list[Conversation]:
    listed = unspelled(outputs.get("messages"))
    if not isinstance(listed, list) or not listed or not all(is_message(one) or "role" in object_of(one) for one in listed):
        raise RefusedError("a LangSmith run of another kind than llm, without messages in its output")
    messages = [message_of(one) if is_message(one) else one for one in listed]
    named = {name: value for name, value in known.items() if value}
    return read_log("a LangSmith run", named | {"messages": messages, "export": rest})
