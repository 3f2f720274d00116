"""Read sessions of Gemini CLI, `chats/session-*.json`, and its newer `.jsonl` with a line for each message and each change.

    {"sessionId", "projectHash", "messages": [{"id", "type": "user" | "gemini", "content", "thoughts", "toolCalls"}]}
    {"sessionId", "projectHash", "kind"}   {"id", "type", "content", ...}   {"$set": {...}}   {"$rewindTo": ID}

A message that is written again replaces the one with its id. What a user went back from stays in `extra`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.data.importers.formats.chat import read_chat
from clawpipe.data.importers.record import Conversation
from clawpipe.data.importers.turns import Turns
from clawpipe.data.importers.values import object_of, objects_of, text_of, without

_KINDS = ("user", "gemini", "info", "error", "warning")
_CHANGES = ("$set", "$rewindTo")
_FAILED = ("error", "cancelled")


def is_gemini_cli(record: JsonObject) -> bool:
    header = "sessionId" in record and "projectHash" in record
    message = record.get("type") in _KINDS and {"id", "timestamp", "content"} <= record.keys() and "sessionId" not in record
    return header or message or (len(record) == 1 and any(name in record for name in _CHANGES))


def join_gemini_cli(records: Sequence[JsonObject], session: str) -> Iterator[Conversation]:
    """Yield the conversation of each session in a file.

    Raises:
        RefusedError: a session is not a conversation.
    """
    for header, lines in _sessions(records):
        log = _Log(objects_of(header.get("messages")))
        for line in lines:
            log.apply(line)
        known = {"session_id": text_of(header.get("sessionId")) or session, "model": log.model}
        kept = without(header, "sessionId", "messages") | ({"rewound": log.left} if log.left else {})
        row = {name: value for name, value in known.items() if value} | ({"export": kept} if kept else {})
        yield from read_chat(row | {"messages": log.turns().messages})


def _sessions(records: Sequence[JsonObject]) -> Iterator[tuple[JsonObject, list[JsonObject]]]:
    """Yield the header and the lines of each session. One that is resumed has another header, and says its messages again."""
    header, lines = JsonObject(), list[JsonObject]()
    for record in records:
        if "sessionId" not in record:
            lines.append(record)
        elif "messages" in record or record["sessionId"] != header.get("sessionId"):
            if header or lines:
                yield header, lines
            header, lines = record, []
    yield header, lines


class _Log:
    """The messages of a session, changed line by line. `left` holds those that a user went back from."""

    def __init__(self, messages: list[JsonObject]) -> None:
        self.messages, self.left = messages, list[JsonObject]()

    def apply(self, line: JsonObject) -> None:
        if "$rewindTo" in line:
            place = next((n for n, one in enumerate(self.messages) if one.get("id") == line["$rewindTo"]), len(self.messages))
            self.left += self.messages[place:]
            del self.messages[place:]
        elif "$set" in line:
            replaced = object_of(line["$set"]).get("messages")
            self.messages = objects_of(replaced) if isinstance(replaced, list) else self.messages
        else:
            same = next((n for n, one in enumerate(self.messages) if one.get("id") == line.get("id")), None)
            self.messages[len(self.messages) if same is None else same : len(self.messages) if same is None else same + 1] = [line]

    @property
    def model(self) -> str | None:
        return next((model for message in self.messages if (model := text_of(message.get("model")))), None)

    def turns(self) -> Turns:
        turns = Turns()
        for message in self.messages:
            if message.get("type") == "user":
                _add_request(turns, message.get("content"))
            elif message.get("type") == "gemini":
                _add_reply(turns, message)
            elif message.get("type") == "error":
                turns.mark(finish_reason="error")
        return turns


def _add_request(turns: Turns, content: Any) -> None:
    parts = [content] if isinstance(content, str | dict) else content if isinstance(content, list) else []
    said = [part for part in parts if "functionResponse" not in object_of(part)]  # the calls hold their results
    if said:
        turns.say("user", said[0] if len(said) == 1 and isinstance(said[0], str) else said)


def _add_reply(turns: Turns, message: JsonObject) -> None:
    turns.close()
    for thought in objects_of(message.get("thoughts")):
        turns.think("\n".join(text for name in ("subject", "description") if (text := text_of(thought.get(name)))))
    content = message.get("content")
    turns.say("assistant", [content] if isinstance(content, dict) else content or "")
    calls = objects_of(message.get("toolCalls"))
    for call in calls:
        turns.call(call.get("name"), call.get("args") or {}, call.get("id"))
    for call in calls:
        if "result" in call or "status" in call:
            failed = call.get("status") in _FAILED
            turns.answer(_result(call), call.get("id"), call.get("name"), failed=failed if "status" in call else None)


def _result(call: JsonObject) -> Any:
    """Return the text of a tool's answer: what its function response says, else what was displayed."""
    said = [object_of(object_of(part.get("functionResponse")).get("response")) for part in objects_of(call.get("result"))]
    texts = [text for one in said for name in ("output", "error") if (text := text_of(one.get(name)))]
    if texts:
        return "\n".join(texts)
    shown = call.get("resultDisplay")
    return call.get("result") if said and any(said) else shown if isinstance(shown, str) else ""
