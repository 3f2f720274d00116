"""Read sessions of Claude Code, `projects/*/*.jsonl`: a line for each content block, and others about the session.

    {"type": "user", "uuid", "parentUuid", "sessionId", "message": {"role": "user", "content": ...}, ...}
    {"type": "assistant", ..., "message": {"id", "role": "assistant", "model", "content": [one block], "usage"}}

Lines with the same message id are one message of the model. Sub-agents (`isSidechain`) are separate conversations, and so is each
branch of a session in which the user went back (`parentUuid`). Messages of the program itself (`<synthetic>`) are context. Qwen
Code writes the same with Gemini's parts, and results of tools on lines of the type `tool_result`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.data.importers.formats.branches import Branch, alike_in, branches_with_replies, read_branch
from clawpipe.data.importers.record import Conversation, counted
from clawpipe.data.importers.strict_json import RefusedError

_SPEAKERS = ("user", "assistant", "tool_result")
_MARKS = ("sessionId", "parentUuid", "leafUuid", "snapshot")
_ELSE = ("traceId", "input", "output", "observations", "prompt", "completion")  # of other records that name a session
_LINES = "lines"  # key of a message for the further fields of its lines
_COMPACTED = "compact_boundary"
_SYNTHETIC = "<synthetic>"  # the model name on messages of the program itself
_INJECTED = ("<command-", "<local-command-", "<system-reminder>", "Caveat: ")  # prefixes of texts that no person typed


def is_claude_code(record: JsonObject) -> bool:
    marked = isinstance(record.get("type"), str) and any(name in record for name in _MARKS)
    return marked and not any(name in record for name in _ELSE)


def join_claude_code(records: Sequence[JsonObject], _session: str) -> Iterator[Conversation]:
    """Yield the conversations of a session file.

    Raises:
        RefusedError: it holds no assistant message.
    """
    threads: dict[tuple[str | None, str | None], _Thread] = {}
    others: list[JsonObject] = []
    for record in records:
        thread = threads.setdefault((_name(record.get("sessionId")), _agent(record)), _Thread())
        if record["type"] in _SPEAKERS and isinstance(record.get("message"), dict):
            thread.add(record)
        else:
            thread.pass_by(record)
            others.append(record)
    branches = [
        (session, branch)
        for (session, _), thread in threads.items()
        for branch in branches_with_replies([*thread.left, thread.branch])
    ]
    found, unread, why = [], list[JsonObject](), "no assistant message"
    for session, branch in branches:
        try:
            found.append(_conversation(session, branch))
        except RefusedError as error:
            why = str(error)
            unread += branch.messages[branch.known :]
    if not found:
        raise RefusedError(why)
    kept = {name: value for name, value in (("lines", others), ("unread", unread)) if value}
    yield replace(found[0], extra=dict(found[0].extra) | kept)
    yield from found[1:]


def _name(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _agent(record: JsonObject) -> str | None:
    """Return the id of the sub-agent that wrote a line; None for the main agent."""
    return str(record.get("agentId")) if record.get("isSidechain") is True else None


class _Thread:
    """Joins the lines of one agent into messages. `left` holds the branches that the user left."""

    def __init__(self) -> None:
        self.left: list[Branch] = []
        self.branch = Branch()
        self._ends: dict[str, int] = {}  # number of messages after a line, by its uuid
        self._by_id: dict[str, int] = {}  # index of a message of the model, by its id

    def add(self, record: JsonObject) -> None:
        self._go_back(record)
        message = dict(record["message"]) | {"role": "tool" if record["type"] == "tool_result" else record["type"]}
        rest = {name: value for name, value in record.items() if name != "message"}
        name = message.get("id") if record["type"] == "assistant" else None
        place = self._by_id.get(name) if isinstance(name, str) else None
        if place is None:
            self._append(message, rest)
        else:
            self.branch.messages[place] = _extended(self.branch.messages[place], message, rest)
        self._end(record, len(self.branch.messages))

    def pass_by(self, record: JsonObject) -> None:
        """Pass over a line without a message. After a compaction the history begins anew."""
        self._end(record, 0 if record.get("subtype") == _COMPACTED else len(self.branch.messages))

    def _end(self, record: JsonObject, length: int) -> None:
        if isinstance(uuid := record.get("uuid"), str):
            self._ends[uuid] = length

    def _append(self, message: JsonObject, rest: JsonObject) -> None:
        place = len(self.branch.messages)
        if message["role"] == "assistant":
            if isinstance(name := message.get("id"), str):
                self._by_id[name] = place
            if message.get("model") == _SYNTHETIC or rest.get("isApiErrorMessage") is True:
                self.branch.muted.add(place)
        self.branch.messages.append(message | {_LINES: [rest]})

    def _go_back(self, record: JsonObject) -> None:
        """Begin a new branch if a user message follows an earlier message than the last; tool results follow their call."""
        parent = record.get("parentUuid")
        end = self._ends.get(parent) if isinstance(parent, str) else None
        if record["type"] != "user" or end is None or end >= len(self.branch.messages) or _is_answer(record["message"]):
            return
        if not any(self.branch.messages[place].get("role") == "assistant" for place in range(end, len(self.branch.messages))):
            return  # several user messages in a row
        self.left.append(self.branch)
        self.branch = self.branch.back_to(end)
        self._by_id = {name: place for name, place in self._by_id.items() if place < end}


def _extended(before: JsonObject, message: JsonObject, rest: JsonObject) -> JsonObject:
    """Add the block of one more line to a message of the model; fields that differ stay with the line."""
    other = {name: value for name, value in message.items() if name != "content" and before.get(name) != value}
    content = [*_parts(before.get("content")), *_parts(message.get("content"))]
    return before | {"content": content, _LINES: [*before[_LINES], rest | ({"message": other} if other else {})]}


def _is_answer(message: JsonObject) -> bool:
    return any(isinstance(part, dict) and part.get("type") == "tool_result" for part in _parts(message.get("content")))


def _parts(content: Any) -> list[Any]:
    return content if isinstance(content, list) else [] if content is None else [content]


def _conversation(session: str | None, branch: Branch) -> Conversation:
    models = [name for message in branch.messages if (name := _name(message.get("model"))) not in (None, _SYNTHETIC)]
    alike = alike_in([line for message in branch.messages for line in message[_LINES]])
    messages = [message | {_LINES: _without(message[_LINES], alike)} for message in branch.messages]
    read, kinds = read_branch(replace(branch, messages=messages))
    extra = alike | ({"messages": read.unknown} if read.unknown else {})
    return Conversation(
        read.messages,
        kinds,
        _request([message.content for message in read.messages if message.role == "user"]),
        session=session,
        model=models[0] if models else None,
        extra=extra,
        unread=read.unread,
        **counted(read.messages, read.failed),
    )


def _without(lines: list[JsonObject], alike: JsonObject) -> list[JsonObject] | None:
    """Remove the fields that all lines share; None if no other field is left."""
    rest = [{name: value for name, value in line.items() if name not in alike} for line in lines]
    return rest if any(rest) else None


def _request(asked: Sequence[str]) -> str:
    """Return the first request that a person typed, and not the program."""
    if not asked:
        raise RefusedError("no user message")
    return next((text for text in asked if text.strip() and not text.lstrip().startswith(_INJECTED)), asked[0])
