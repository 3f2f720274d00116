"""Read sessions of OpenClaw, `agents/*/sessions/*.jsonl`, which are those of pi: a line for each entry of a tree.

    {"type": "session", "version": 3, "id", "timestamp", "cwd"}
    {"type": "message", "id", "parentId", "timestamp", "message": {"role": "user" | "assistant" | "toolResult", "content", ...}}
    {"type": "compaction", "id", "parentId", "summary", "firstKeptEntryId"}    {"type": "branch_summary", ..., "summary"}

Each branch is a conversation; what an earlier one holds is context in it. A compaction begins a branch, too: with its summary, and
the entries that it kept. What OpenClaw itself writes as the assistant (`delivery-mirror`) no model has said, and none is shown it.
Replies to what nobody asked for, such as heartbeats, are side turns.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from typing import Any

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.data.capture.settings import UNASKED
from clawpipe.data.importers.content import answer_text
from clawpipe.data.importers.formats.branches import Branch, SharedMessages, branches_with_replies
from clawpipe.data.importers.record import Conversation, counted, first_request
from clawpipe.data.importers.strict_json import RefusedError
from clawpipe.data.importers.values import object_of, text_of, without

_ENTRY = ("id", "parentId", "timestamp")
_ROLES = {"user": "user", "assistant": "assistant", "toolResult": "tool", "custom": "user"}
_OWN = "openclaw"  # the provider of messages that OpenClaw wrote itself

Said = tuple[str, JsonObject]  # the id of an entry, and its message in the form of the chat API


def is_openclaw_session(record: JsonObject) -> bool:
    """Whether a record is the header of a session, or one of its entries. Events of Copilot's CLI have dots in their types."""
    kind = record.get("type")
    if not isinstance(kind, str) or "." in kind or "payload" in record:
        return False
    if kind == "session":
        return {"id", "timestamp", "cwd"} <= record.keys()
    speaks = kind == "message" and isinstance(object_of(record.get("message")).get("role"), str)
    return "timestamp" in record and (speaks or all(name in record for name in _ENTRY))


def join_openclaw_session(records: Sequence[JsonObject], session: str) -> Iterator[Conversation]:
    """Yield the conversations of a session file.

    Raises:
        RefusedError: it holds no assistant message.
    """
    header = next((record for record in records if record["type"] == "session"), JsonObject())
    entries = _linked([record for record in records if record is not header])
    messages = {name: message for name, entry in entries.items() if (message := _message(entry))}
    branches, shared = branches_with_replies(_branches(entries, messages)), SharedMessages()
    others = [entry for name, entry in entries.items() if name not in messages]
    others = [header, *others] if header else others
    number = -1
    for number, branch in enumerate(branches):
        yield _conversation(branch, shared, text_of(header.get("id")) or session, others if number == 0 else [])
    if number < 0:
        raise RefusedError("no assistant message")


def _linked(records: Sequence[JsonObject]) -> dict[str, JsonObject]:
    """Return the entries by their ids. Older versions have none: there each line follows the one before."""
    found: dict[str, JsonObject] = {}
    before = None
    for number, record in enumerate(records):
        name = text_of(record.get("id")) or f"line {number}"
        found[name] = record if "id" in record else record | {"parentId": before}
        before = name
    return found


def _branches(entries: dict[str, JsonObject], messages: dict[str, JsonObject]) -> Iterator[Branch]:
    parents = {text_of(entry.get("parentId")) for entry in entries.values()}
    unasked = {name for name, message in messages.items() if message["role"] == "user" and _is_unasked(message)}
    known = set[str]()
    for leaf in (name for name in entries if name not in parents):
        for said in _contexts(entries, messages, leaf):
            replies = [place for place, (_, message) in enumerate(said) if message["role"] == "assistant"]
            new = next((place for place in replies if said[place][0] not in known), len(said))
            known.update(name for name, _ in said)
            yield Branch([message for _, message in said], new, _to_unasked(said, unasked))


def _contexts(entries: dict[str, JsonObject], messages: dict[str, JsonObject], leaf: str) -> Iterator[list[Said]]:
    """Yield what the model was shown and said on the way to a leaf: until each compaction, and at the end."""
    said = list[Said]()
    for name in _way_to(entries, leaf):
        entry = entries[name]
        if entry["type"] == "compaction":
            yield said
            kept = [one for one, _ in said]
            first = entry.get("firstKeptEntryId")
            said = said[kept.index(first) :] if first in kept else []
            said.insert(0, (name, {"role": "user", "content": str(entry.get("summary") or "")}))
        elif name in messages:
            said.append((name, messages[name]))
    yield said


def _way_to(entries: dict[str, JsonObject], leaf: str) -> list[str]:
    way = dict[str, None]()
    at: Any = leaf
    while isinstance(at, str) and at in entries and at not in way:
        way[at] = None
        at = entries[at].get("parentId")
    return list(way)[::-1]


def _message(entry: JsonObject) -> JsonObject | None:
    """Return the message of an entry; None where it holds none, or one that no model was shown."""
    if entry["type"] == "branch_summary":
        return {"role": "user", "content": str(entry.get("summary") or "")}
    if entry["type"] == "custom_message":
        return {"role": "user", "content": entry.get("content") or ""}
    message = object_of(entry.get("message"))
    if entry["type"] != "message" or message.get("provider") == _OWN or message.get("excludeFromContext") is True:
        return None
    if message.get("role") == "bashExecution":
        return {"role": "user", "content": f"Ran `{message.get('command')}`\n{message.get('output') or ''}"}
    role = _ROLES.get(str(message.get("role")))
    if role is None or (role == "assistant" and not message.get("content")):  # a request that failed
        return None
    named = {"tool_call_id": message.get("toolCallId"), "name": message.get("toolName")} if role == "tool" else {}
    return without(message, "toolCallId", "toolName") | {"role": role} | named


def _is_unasked(message: JsonObject) -> bool:
    return UNASKED.match(answer_text(message.get("content") or "")) is not None


def _to_unasked(said: Sequence[Said], unasked: Set[str]) -> set[int]:
    """Return the places of replies to what nobody asked for."""
    found, last = set[int](), ""
    for place, (name, message) in enumerate(said):
        if message["role"] == "user":
            last = name
        elif message["role"] == "assistant" and last in unasked:
            found.add(place)
    return found


def _conversation(branch: Branch, shared: SharedMessages, session: str, others: list[JsonObject]) -> Conversation:
    models = [model for message in branch.messages if (model := text_of(message.get("model")))]
    read, kinds = shared.branch(branch)
    extra = {"lines": others, "messages": read.unknown}
    return Conversation(
        read.messages,
        kinds,
        first_request(read.messages),
        session=session,
        model=models[0] if models else None,
        extra={name: value for name, value in extra.items() if value},
        unread=read.unread,
        **counted(read.messages, read.failed),
    )
