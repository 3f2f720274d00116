"""Sessions of Claude Code, `projects/*/*.jsonl`: a line for each block that is said or heard, and others about the session.

    {"type": "user", "uuid", "parentUuid", "sessionId", "message": {"role": "user", "content": ...}, ...}
    {"type": "assistant", ..., "message": {"id", "role": "assistant", "model", "content": [one block], "usage"}}

Lines of one message of the model have its id. Sub-agents (`isSidechain`) are conversations of their own, and so is each way of a
session in which the user went back (`parentUuid`). What the program says in the model's place (`<synthetic>`) is context.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from clawpipe.importers.branches import Way, alike_in, read_way, ways_that_add
from clawpipe.importers.record import Conversation, counted
from clawpipe.importers.strict_json import RefusedError

_SPEAKERS = ("user", "assistant")
_MARKS = ("sessionId", "parentUuid", "leafUuid", "snapshot")
_LINES = "lines"  # of a message, what its lines say besides
_COMPACTED = "compact_boundary"
_SYNTHETIC = "<synthetic>"  # the model that says what the program itself says
_INJECTED = ("<command-", "<local-command-", "<system-reminder>", "Caveat: ")  # begin what no person typed


def is_claude_code(record: dict[str, Any]) -> bool:
    return isinstance(record.get("type"), str) and any(name in record for name in _MARKS)


def join_claude_code(records: Sequence[dict[str, Any]], file: str) -> Iterator[Conversation]:
    """The conversations of a session's file.

    Raises:
        RefusedError: nobody says anything in it.
    """
    threads: dict[tuple[str | None, str | None], _Thread] = {}
    others: list[dict[str, Any]] = []
    for record in records:
        thread = threads.setdefault((_name(record.get("sessionId")), _agent(record)), _Thread())
        if record["type"] in _SPEAKERS and isinstance(record.get("message"), dict):
            thread.add(record)
        else:
            thread.pass_by(record)
            others.append(record)
    ways = [(session, way) for (session, _), thread in threads.items() for way in ways_that_add([*thread.left, thread.way])]
    found, unread, why = [], list[dict[str, Any]](), "no assistant message"
    for session, way in ways:
        try:
            found.append(_conversation(session, way))
        except RefusedError as error:
            why = str(error)
            unread += way.messages[way.known :]
    if not found:
        raise RefusedError(why)
    kept = {name: value for name, value in (("lines", others), ("unread", unread)) if value}
    yield replace(found[0], extra=dict(found[0].extra) | kept)
    yield from found[1:]


def _name(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _agent(record: dict[str, Any]) -> str | None:
    """The sub-agent that a line is of; None where it is of the session's own."""
    return str(record.get("agentId")) if record.get("isSidechain") is True else None


class _Thread:
    """Lines of one speaker with the model, put together to messages. `left` are ways that were gone back from."""

    def __init__(self) -> None:
        self.left: list[Way] = []
        self.way = Way()
        self._ends: dict[str, int] = {}  # how many messages there were after a line, by its uuid
        self._spoken: dict[str, int] = {}  # where a message of the model is, by its id

    def add(self, record: dict[str, Any]) -> None:
        self._go_back(record)
        message = dict(record["message"]) | {"role": record["type"]}
        rest = {name: value for name, value in record.items() if name != "message"}
        name = message.get("id") if record["type"] == "assistant" else None
        place = self._spoken.get(name) if isinstance(name, str) else None
        if place is None:
            self._append(message, rest)
        else:
            self.way.messages[place] = _gone_on(self.way.messages[place], message, rest)
        self._end(record, len(self.way.messages))

    def pass_by(self, record: dict[str, Any]) -> None:
        """A line that says nothing. After that of a compaction the history begins anew."""
        self._end(record, 0 if record.get("subtype") == _COMPACTED else len(self.way.messages))

    def _end(self, record: dict[str, Any], length: int) -> None:
        if isinstance(uuid := record.get("uuid"), str):
            self._ends[uuid] = length

    def _append(self, message: dict[str, Any], rest: dict[str, Any]) -> None:
        place = len(self.way.messages)
        if message["role"] == "assistant":
            if isinstance(name := message.get("id"), str):
                self._spoken[name] = place
            if message.get("model") == _SYNTHETIC or rest.get("isApiErrorMessage") is True:
                self.way.muted.add(place)
        self.way.messages.append(message | {_LINES: [rest]})

    def _go_back(self, record: dict[str, Any]) -> None:
        """To the message that a person's words follow, if that is not the last; answers of tools follow their own call."""
        parent = record.get("parentUuid")
        end = self._ends.get(parent) if isinstance(parent, str) else None
        if record["type"] != "user" or end is None or end >= len(self.way.messages) or _is_answer(record["message"]):
            return
        if not any(self.way.messages[place].get("role") == "assistant" for place in range(end, len(self.way.messages))):
            return  # words that were said one after the other
        self.left.append(self.way)
        self.way = self.way.back_to(end)
        self._spoken = {name: place for name, place in self._spoken.items() if place < end}


def _gone_on(before: dict[str, Any], message: dict[str, Any], rest: dict[str, Any]) -> dict[str, Any]:
    """A message of the model with the block of one more line; what the line says of it otherwise is kept with the line."""
    other = {name: value for name, value in message.items() if name != "content" and before.get(name) != value}
    content = [*_parts(before.get("content")), *_parts(message.get("content"))]
    return before | {"content": content, _LINES: [*before[_LINES], rest | ({"message": other} if other else {})]}


def _is_answer(message: dict[str, Any]) -> bool:
    return any(isinstance(part, dict) and part.get("type") == "tool_result" for part in _parts(message.get("content")))


def _parts(content: Any) -> list[Any]:
    return content if isinstance(content, list) else [] if content is None else [content]


def _conversation(session: str | None, way: Way) -> Conversation:
    models = [name for message in way.messages if (name := _name(message.get("model"))) not in (None, _SYNTHETIC)]
    alike = alike_in([line for message in way.messages for line in message[_LINES]])
    told = [message | {_LINES: _without(message[_LINES], alike)} for message in way.messages]
    said, kinds = read_way(replace(way, messages=told))
    extra = alike | ({"messages": said.unknown} if said.unknown else {})
    return Conversation(
        said.messages,
        kinds,
        _request([message.content for message in said.messages if message.role == "user"]),
        session=session,
        model=models[0] if models else None,
        extra=extra,
        unread=said.unread,
        **counted(said.messages, said.failed),
    )


def _without(lines: list[dict[str, Any]], alike: dict[str, Any]) -> list[dict[str, Any]] | None:
    """The lines without what all of them say; None where that is all."""
    rest = [{name: value for name, value in line.items() if name not in alike} for line in lines]
    return rest if any(rest) else None


def _request(asked: Sequence[str]) -> str:
    """What a person asked first, not what the program said in between."""
    if not asked:
        raise RefusedError("no user message")
    return next((text for text in asked if text.strip() and not text.lstrip().startswith(_INJECTED)), asked[0])
