"""Read items and results of the Berkeley Function Calling Leaderboard (BFCL), answers of ToolBench, and rows of xLAM.

    {"id", "question": [[messages]], "function": [tools]}                                 an item of BFCL: a task with tools
    {"id", "result": [...], "inference_log": [{"begin_of_turn_query", "step_0": [...]}]}  a result of BFCL with its log
    {"win", "answer_generation": {"query", "train_messages", "function", "valid_data"}}   an answer of ToolBench
    {"query", "tools": "[...]", "answers": "[{\"name\", \"arguments\"}]"}                  a row of xLAM's function calling

A result of BFCL without a log holds no question, and is refused: `--include-input-log` keeps it.
"""

from __future__ import annotations

from collections.abc import Iterator

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.data.importers.formats.chat import read_chat
from clawpipe.data.importers.message import read_messages
from clawpipe.data.importers.record import Conversation, Prompt, first_request
from clawpipe.data.importers.strict_json import RefusedError
from clawpipe.data.importers.toolcalls import tools_on_offer
from clawpipe.data.importers.values import name_of, object_of, objects_of, without

_QUERY = "begin_of_turn_query"


def is_bfcl_item(record: JsonObject) -> bool:
    question = record.get("question")
    has_tools = isinstance(record.get("function", record.get("involved_classes")), list)
    return "id" in record and has_tools and isinstance(question, list) and bool(question)


def read_bfcl_item(record: JsonObject) -> Prompt:
    """Read an item of one turn as a task.

    Raises:
        RefusedError: it has several turns, which need the environment of the benchmark.
    """
    turns = [objects_of(turn) for turn in record["question"] if isinstance(turn, list)] or [objects_of(record["question"])]
    if len(turns) != 1:
        raise RefusedError("an item of BFCL with several turns, which needs its environment")
    messages = read_messages(turns[0], "question").messages
    first_request(messages)
    return Prompt(messages, tools_on_offer(record.get("function")), without(record, "question", "function"))


def is_bfcl_result(record: JsonObject) -> bool:
    return (
        "id" in record and "result" in record and any(name in record for name in ("inference_log", "input_token_count", "latency"))
    )


def read_bfcl_result(record: JsonObject) -> list[Conversation]:
    """Read a result with its log.

    Raises:
        RefusedError: it has no log, or is not a conversation.
    """
    messages = [message for turn in objects_of(record.get("inference_log")) for message in _turn(turn)]
    if not any(message.get("role") == "user" for message in messages):
        raise RefusedError("a result of BFCL without its question: run the benchmark with --include-input-log")
    return read_chat({"messages": messages, "session_id": name_of(record, "id"), "export": without(record, "inference_log", "id")})


def _turn(turn: JsonObject) -> Iterator[JsonObject]:
    """Yield the messages of a turn: what was asked, then the steps in their order."""
    yield from objects_of(turn.get(_QUERY))
    steps = [name for name in turn if name.startswith("step_")]
    for name in sorted(steps, key=lambda one: int(one.removeprefix("step_")) if one.removeprefix("step_").isdecimal() else 0):
        yield from (message for message in objects_of(turn[name]) if message.get("role") in ("user", "assistant", "tool"))


def is_toolbench(record: JsonObject) -> bool:
    return "train_messages" in object_of(record.get("answer_generation"))


def read_toolbench(record: JsonObject) -> list[Conversation]:
    """Read the last list of messages of an answer, which holds the way that led to it.

    Raises:
        RefusedError: there is none, or it is not a conversation.
    """
    answer = object_of(record["answer_generation"])
    listed = [objects_of(one) for one in answer["train_messages"] or [] if isinstance(one, list)]
    if not listed:
        raise RefusedError("an answer of ToolBench without messages")
    known: JsonObject = {"success": record["win"]} if isinstance(record.get("win"), bool) else {}
    export = without(record, "answer_generation", "win", "tree", "trys") | without(answer, "train_messages", "function")
    return read_chat(known | {"messages": listed[-1], "tools": answer.get("function"), "export": export})


def is_xlam(record: JsonObject) -> bool:
    answers = objects_of(record.get("answers"))
    return (
        isinstance(record.get("query"), str) and "tools" in record and bool(answers) and all("arguments" in one for one in answers)
    )


def read_xlam(record: JsonObject) -> list[Conversation]:
    """Read a request and the calls that answer it.

    Raises:
        RefusedError: it is not a conversation.
    """
    calls = [{"name": call.get("name"), "arguments": call["arguments"]} for call in objects_of(record["answers"])]
    messages = [{"role": "user", "content": record["query"]}, {"role": "assistant", "content": "", "tool_calls": calls}]
    return read_chat({"messages": messages, "tools": record["tools"], "export": without(record, "query", "answers", "tools")})
