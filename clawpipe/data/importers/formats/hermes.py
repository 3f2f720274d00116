"""Read and write rows of Hermes and MonoClaw: batch rows and interactive samples (`trajectory_samples`, `failed_trajectories`).

A conversation is a list of {from, value}: system, human, gpt and tool. A gpt value holds an optional `<think>` block, text,
and one `<tool_call>` block per call; a tool value holds one `<tool_response>` block per call of the turn before. Reasoning stays
in the text, in its tags, as the model wrote it. `call_failed` applies the batch runner's rule for failed tool calls.

Other writers of this form use {from: function_call} and {from: observation}, and a separate field for the system message. An
exported session is one object with the columns of the agent's database and `messages` in the form of the chat API; a file in its
folder of sessions is the same, with `platform` in place of `source`. Turns of cron jobs are side turns.

A transcript has a message on each line, or an item of the Responses API, as the Agents SDK writes them; Goose's sessions and
Cline's histories are transcripts, too.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from clawpipe.core.basics.json_types import JsonObject, Options
from clawpipe.core.conversation.messages import Message, Role
from clawpipe.data.importers.fields import Fields, take_tools
from clawpipe.data.importers.formats.responses import is_item, messages_of
from clawpipe.data.importers.formats.sharegpt import read_dialogue
from clawpipe.data.importers.message import CALLERS, ROLES, read_messages, take_system
from clawpipe.data.importers.names import take_names, user_of_messages, without_names
from clawpipe.data.importers.outcome import take_outcome
from clawpipe.data.importers.record import SIDE, Conversation, Judgement, Kind, Status, counted, first_request, main_but_muted
from clawpipe.data.importers.toolcalls import count_tool_calls, tools_on_offer
from clawpipe.data.wire.arguments import parsed
from clawpipe.data.wire.spelled import spelled_object

_ROLES: dict[str, Role] = {"system": "system", "human": "user", "gpt": "assistant", "tool": "tool"}
_TOOLS = re.compile(r"<tools>\s*(\[.*?\])\s*</tools>", re.DOTALL)
_COLUMNS = ("completed", "partial", "prompt_index", "tool_stats", "tool_error_counts", "toolsets_used")  # of Hermes' rows
_MARKUP = ("<tool_call>", "<tool_response>")
_META = "session_meta"
_HEADER = ("working_dir", "message_count")  # of the first line of Goose's sessions
_ELSE = ("messages", "conversations", "contents", "prompt", "message")  # fields that mark a line as another format
_SAYS = ("content", "parts", "tool_calls")
_INTERRUPTED = re.compile(r"\s*\[Response interrupted by (user|API Error|user feedback|a tool use result[^\]]*)\]\s*\Z")


def is_sharegpt(record: JsonObject) -> bool:
    return isinstance(record.get("conversations"), list)


def is_hermes(record: JsonObject) -> bool:
    """Whether a row of ShareGPT's form has a column of Hermes' runner, or a turn with Hermes' markup of calls."""
    if not is_sharegpt(record):
        return False
    values = (part.get("value") for part in record["conversations"] if isinstance(part, dict))
    return any(name in record for name in _COLUMNS) or any(
        mark in value for value in values if isinstance(value, str) for mark in _MARKUP
    )


def is_template_text(record: JsonObject) -> bool:
    """Whether the turns of a row were read from its text, see `unspelled_columns`."""
    return is_sharegpt(record) and "text" in record and record["text"] is None


def read_hermes(record: JsonObject) -> Conversation:
    """Read a batch row or an interactive sample.

    Raises:
        RefusedError: the record is not a conversation of this form.
    """
    fields = Fields(record)
    read = read_dialogue(_with_system(fields, fields.take("conversations", list)), "conversations")
    messages = read.messages
    completed, partial = fields.take("completed", bool, default=None), fields.take("partial", bool, default=None)
    metadata = fields.take("metadata", dict, default={})
    model = fields.take("model", str, default=metadata.get("model"))
    stats, errors = fields.take("tool_stats", dict, default={}), fields.take("tool_error_counts", dict, default={})
    counts = _counts(messages, stats, errors)
    evidence = {"completed": completed, "partial": partial, "failed_tool_calls": count_tool_calls(messages)[1]}
    outcome = take_outcome(fields) if completed is None else (_outcome(completed, bool(partial), evidence), *take_outcome(fields))
    tools = take_tools(fields) or _tools_in(messages)
    names = take_names(fields)
    kept = {"metadata": metadata, "completed": completed, "partial": partial, "tool_stats": stats, "tool_error_counts": errors}
    return Conversation(
        messages,
        main_but_muted(messages, read.muted),
        first_request(messages),
        **names,
        model=model if isinstance(model, str) else None,
        judgements=outcome,
        extra=_present(fields.rest | kept | {"messages": read.unknown}),
        unread=read.unread,
        status=_status(completed, bool(partial)),
        tools=tools,
        **counts,
    )


def _with_system(fields: Fields, given: list[Any]) -> list[Any]:
    """Put the system message of a separate field before the turns, in their form."""
    if any(isinstance(part, dict) and part.get("from") == "system" for part in given):
        return given
    messages = take_system(fields, given)
    if len(messages) == len(given) or not any(isinstance(part, dict) and "from" in part for part in given):
        return messages
    return [{"from": "system", "value": messages[0]["content"]}, *given]


def _status(completed: bool | None, partial: bool) -> Status | None:
    """Return the status of a row: one that is neither completed nor partial ran out of turns, with whole answers."""
    return "partial" if partial else None if completed is None else "completed" if completed else "partial"


def _counts(messages: Sequence[Message], stats: JsonObject, errors: JsonObject) -> Options:
    """Count tool calls and failures: the runner's counts where it has any, else counts from the messages."""
    rows = [row for row in stats.values() if isinstance(row, dict)]
    counts = {"tool_calls": _sum(row.get("count") for row in rows) if rows else None}
    counts["tool_errors"] = _sum(errors.values()) if errors else _sum(row.get("failure") for row in rows) if rows else None
    return counted(messages) | {name: value for name, value in counts.items() if value is not None}


def _sum(values: Iterable[Any]) -> int:
    return sum(value for value in values if type(value) is int and value > 0)


def _tools_in(messages: Sequence[Message]) -> str | None:
    """Return the tools that a system message lists."""
    blocks = (_TOOLS.search(message.content) for message in messages if message.role == "system")
    return next((tools_on_offer(match.group(1)) for match in blocks if match), None)


def write_hermes(messages: Sequence[Message]) -> list[dict[str, str]]:
    """Return the `conversations` of a row, which `read_hermes` reads back."""
    turns: list[dict[str, str]] = []
    for message in messages:
        value = _written(message)
        if message.role == "tool" and turns and turns[-1]["from"] == "tool":
            turns[-1]["value"] += f"\n{value}"
        else:
            turns.append({"from": next(name for name, role in _ROLES.items() if role == message.role), "value": value})
    return turns


def is_session(record: JsonObject) -> bool:
    """Whether a record is a row of the agent's database, or a file of its folder of sessions."""
    named = ("id" in record and "started_at" in record) or ("session_id" in record and "session_start" in record)
    return named and isinstance(record.get("messages"), list)


def read_session(record: JsonObject) -> Conversation:
    """Read an exported session; the messages of sessions that it continues come first.

    Raises:
        RefusedError: the record is not a conversation.
    """
    fields = Fields(record)
    session = str(fields.take("id" if record.get("id") is not None else "session_id", str, int))
    read = read_messages(take_system(fields, fields.take("messages", list)))
    messages = read.messages
    fields.take("segments", list, default=None)  # the same messages once more, by session
    source, platform = fields.take("source", str, default=""), fields.take("platform", str, default="")
    calls = fields.take("tool_call_count", int, default=None)
    side: Kind | None = "side" if source in SIDE or platform in SIDE else None
    return Conversation(
        messages,
        tuple(side or kind for kind in main_but_muted(messages, read.muted)),
        first_request(messages),
        session=session,
        user=fields.take("user_id", str, default=None),
        model=fields.take("model", str, default=None),
        tools=take_tools(fields) or _tools_in(messages),
        judgements=take_outcome(fields),
        extra=_present(fields.rest | {"source": source, "platform": platform, "messages": read.unknown}),
        unread=read.unread,
        **(counted(messages, read.failed) | ({} if calls is None else {"tool_calls": calls})),
    )


def _outcome(completed: bool, partial: bool, evidence: JsonObject) -> Judgement:
    success = completed and not partial
    reason = "completed" if success else "stopped on invalid tool calls" if partial else "not completed"
    return Judgement(float(success), "custom", success, reason=reason, evidence=evidence)


def _written(message: Message) -> str:
    if message.role == "tool":
        body = {"tool_call_id": message.tool_call_id, "name": message.name or "unknown", "content": _parsed(message.content)}
        return f"<tool_response>\n{json.dumps(body, ensure_ascii=False)}\n</tool_response>"
    calls = "".join(f"\n<tool_call>\n{spelled_object(call)}\n</tool_call>" for call in message.tool_calls)
    return message.content + calls


def _parsed(content: str) -> Any:
    """Parse content that begins like JSON, as the batch runner does; else return it as it is."""
    value = parsed(content) if content[:1] in ("{", "[") else None
    return content if value is None else value


def _present(extra: JsonObject) -> JsonObject:
    return {name: value for name, value in extra.items() if value not in (None, "", {}, [])}


def is_transcript(record: JsonObject) -> bool:
    role = record.get("role")
    speaks = isinstance(role, str) and (role in ROLES or role in CALLERS) and any(name in record for name in _SAYS)
    return (speaks or _is_header(record) or is_item(record)) and not any(name in record for name in _ELSE)


def _is_header(record: JsonObject) -> bool:
    return record.get("role") == _META or all(name in record for name in _HEADER)


def is_said(record: JsonObject) -> bool:
    """Whether a record of a transcript is a message, or an item, and not the header."""
    return not _is_header(record)


def join_transcript(records: Sequence[JsonObject], session: str) -> Iterator[Conversation]:
    """Read the session of a file, or one of those in a table.

    Raises:
        RefusedError: the records are not a conversation, or not of one session and user.
    """
    headers = [record for record in records if not is_said(record)]
    meta = Fields({name: value for record in headers for name, value in record.items() if name != "role"})
    user = user_of_messages(listed := list(filter(is_said, records)))
    said = [without_names(record) for record in listed]
    if any(map(is_item, said)):
        said = list(messages_of(said))
    read = read_messages(take_system(meta, [_without_mark(part) for part in said]))
    side: Kind | None = "side" if meta.peek("platform") in SIDE else None
    kinds = main_but_muted(read.messages, read.muted)
    yield Conversation(
        read.messages,
        tuple(side or kind for kind in kinds),
        first_request(read.messages),
        session=session,
        user=user or meta.take("user_id", str, default=None),
        model=meta.take("model", str, default=None),
        tools=take_tools(meta),
        extra=meta.rest | ({"messages": read.unknown} if read.unknown else {}),
        unread=read.unread,
        **counted(read.messages, read.failed),
    )


def _without_mark(message: JsonObject) -> JsonObject:
    """Return a message without the mark that Cline and Roo put behind an answer which they stopped; it says why the answer ended.

    An answer that they stopped at its call of a tool is whole. What Hermes sent from elsewhere and copied (`mirror`) is context.
    """
    if message.get("mirror") is True:
        return message | {"weight": 0}
    content = message.get("content") if message.get("role") == "assistant" else None
    listed = content if isinstance(content, list) else [content]
    parts = [part if isinstance(part, dict) else {"type": "text", "text": part} for part in listed]
    mark = next((found for part in parts if (found := _INTERRUPTED.search(str(part.get("text"))))), None)
    if mark is None:
        return message
    ended = {} if mark[1].startswith("a tool") else {"finish_reason": f"interrupted by {mark[1]}"}
    cut = [part | {"text": _INTERRUPTED.sub("", text)} if isinstance(text := part.get("text"), str) else part for part in parts]
    return message | {"content": cut if isinstance(content, list) else cut[0]["text"]} | ended
