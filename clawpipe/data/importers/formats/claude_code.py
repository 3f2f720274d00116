"""Read sessions of Claude Code, `projects/*/*.jsonl`: a line for each content block, and others about the session.

    {"type": "user", "uuid", "parentUuid", "sessionId", "message": {"role": "user", "content": ...}, ...}
    {"type": "assistant", ..., "message": {"id", "role": "assistant", "model", "content": [one block], "usage"}}

Lines with the same message id are one message of the model. Sub-agents (`isSidechain`) are separate conversations: those of older
versions have no `agentId`, and share nothing but their first line. So is each branch of a session: a user went back, or the program
asked the model once more (`parentUuid`). Messages of the program itself (`<synthetic>`) are context. Qwen Code writes the same with
Gemini's parts, and results of tools on lines of the type `tool_result`.
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
_ENDED, _PARENT = "stop_reason", "parentUuid"
_SYNTHETIC = "<synthetic>"  # the model name on messages of the program itself
_INTERRUPTED = "[Request interrupted by user]"  # what follows an answer that was cut; one cut at its call is whole
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
    roots: dict[str | None, str] = {}
    for record in _linked(records):
        thread = threads.setdefault((_name(record.get("sessionId")), _agent(record, roots)), _Thread())
        if record["type"] in _SPEAKERS and isinstance(record.get("message"), dict):
            thread.add(record)
        else:
            thread.pass_by(record)
            others.append(record)
    branches = [(session, branch) for (session, _), thread in threads.items() for branch in branches_with_replies(thread.branches)]
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


def _linked(records: Sequence[JsonObject]) -> Sequence[JsonObject]:
    """Return the lines without `parentUuid` if none of them names another: then only their order says what follows what."""
    if any(record.get(_PARENT) for record in records):
        return records
    return [{name: value for name, value in record.items() if name != _PARENT} for record in records]


def _agent(record: JsonObject, roots: dict[str | None, str]) -> str | None:
    """Return the name of the sub-agent that wrote a line: its id, else the uuid of its first line; None for the main agent.

    Args:
        roots: first lines of sub-agents without an id, by the uuids of their lines; receives this line's.
    """
    if record.get("isSidechain") is not True:
        return None
    if record.get("agentId") is not None or _PARENT not in record:
        return str(record.get("agentId"))
    uuid = _name(record.get("uuid"))
    root = roots.get(_name(record[_PARENT]), str(uuid))
    if uuid:
        roots[uuid] = root
    return root


class _Thread:
    """Joins the lines of one agent into messages. `branches` holds all branches; a line continues one of them, or begins one."""

    def __init__(self) -> None:
        self._branch = Branch()
        self.branches = [self._branch]
        self._ends: dict[str | None, tuple[Branch, int]] = {}  # branch and number of its messages after a line, by its uuid
        self._by_id: dict[str | None, JsonObject] = {}  # messages of the model in this branch, by their ids

    def add(self, record: JsonObject) -> None:
        message = dict(record["message"]) | {"role": "tool" if record["type"] == "tool_result" else record["type"]}
        rest = {name: value for name, value in record.items() if name != "message"}
        begun = self._by_id.get(_name(message.get("id"))) if record["type"] == "assistant" else None
        if begun:
            _extend(begun, message, rest)
        else:
            self._follow(record)
            self._append(message, rest)
        self._end(record, len(self._branch.messages))

    def pass_by(self, record: JsonObject) -> None:
        """Pass over a line without a message. After a compaction the history begins anew."""
        self._end(record, 0 if record.get("subtype") == _COMPACTED else len(self._branch.messages))

    def _end(self, record: JsonObject, length: int) -> None:
        if isinstance(uuid := record.get("uuid"), str):
            self._ends[uuid] = (self._branch, length)

    def _append(self, message: JsonObject, rest: JsonObject) -> None:
        message |= {_LINES: [rest]}
        before = self._branch.messages[-1] if self._branch.messages else JsonObject()
        if _is_interruption(message) and before.get("role") == "assistant" and before.get(_ENDED) is None:
            before[_ENDED] = "interrupted"
        if message["role"] == "assistant" and (message.get("model") == _SYNTHETIC or rest.get("isApiErrorMessage") is True):
            self._branch.muted.add(len(self._branch.messages))
        self._branch.messages.append(message)
        self._know(message)

    def _know(self, message: JsonObject) -> None:
        if message["role"] == "assistant" and (name := _name(message.get("id"))):
            self._by_id[name] = message

    def _follow(self, record: JsonObject) -> None:
        """Go to the branch of the line before this one; begin a new branch there if the model has answered behind it.

        Results of tools follow their calls, which may have been made side by side.
        """
        branch, end = self._before(record)
        answers = record["type"] == "tool_result" or _is_answer(record["message"])
        if not answers and any(message["role"] == "assistant" for message in branch.messages[end:]):
            branch = branch.back_to(end)
            self.branches.append(branch)
        if branch is not self._branch:
            self._branch, self._by_id = branch, {}
            for message in branch.messages:
                self._know(message)

    def _before(self, record: JsonObject) -> tuple[Branch, int]:
        """Return where the line before a line ends. A user without one begins anew; any other such line goes on."""
        here = self._branch
        if record["type"] == "user" and _PARENT in record and record[_PARENT] is None:
            return here, 0
        branch, end = self._ends.get(_name(record.get(_PARENT)), (here, len(here.messages)))
        is_here = end == 0 or (end <= len(here.messages) and here.messages[end - 1] is branch.messages[end - 1])
        return here if is_here else branch, end


def _extend(before: JsonObject, message: JsonObject, rest: JsonObject) -> None:
    """Add the block of one more line to a message of the model; fields that differ stay with the line.

    Why the message ended stands on its last line; those before say null.
    """
    other = {name: value for name, value in message.items() if name != "content" and before.get(name) != value}
    before["content"] = [*_parts(before.get("content")), *_parts(message.get("content"))]
    before[_LINES].append(rest | ({"message": other} if other else {}))
    if message.get(_ENDED) is not None:
        before[_ENDED] = message[_ENDED]


def _is_answer(message: JsonObject) -> bool:
    return any(isinstance(part, dict) and part.get("type") == "tool_result" for part in _parts(message.get("content")))


def _is_interruption(message: JsonObject) -> bool:
    texts = [part.get("text") if isinstance(part, dict) else part for part in _parts(message.get("content"))]
    return message["role"] == "user" and texts == [_INTERRUPTED]


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
