"""Read sessions of Codex, `sessions/YYYY/MM/DD/rollout-*.jsonl`: a line for each item of the Responses API, and for each event.

    {"timestamp", "type": "session_meta", "payload": {"id", "cwd", "instructions", ...}}
    {"timestamp", "type": "turn_context", "payload": {"model", ...}}
    {"timestamp", "type": "response_item", "payload": {"type": "message" | "reasoning" | "function_call" | ..., ...}}
    {"timestamp", "type": "event_msg", "payload": {"type": "thread_rolled_back", "num_turns": 1}}

A compaction and a rollback of turns each begin a new branch of the session, which becomes a conversation. What Codex itself writes
as the user, such as the environment, is no turn that a rollback counts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.data.importers.fields import Fields
from clawpipe.data.importers.formats.branches import Branch, branches_with_replies, read_branch
from clawpipe.data.importers.formats.responses import messages_of
from clawpipe.data.importers.record import Conversation, counted
from clawpipe.data.importers.strict_json import RefusedError

_INJECTED = (  # beginnings of texts that no person typed as a request
    *("# AGENTS.md", "<environment_context>", "<user_instructions>", "<permissions", "<INSTRUCTIONS>"),
    *("<turn_aborted", "<user_shell_command", "<skill>", "<subagent_notification"),
)

_UNSAID = ("ghost_snapshot", "other")  # items of the program itself, which no model is shown


def is_codex(record: JsonObject) -> bool:
    return isinstance(record.get("type"), str) and isinstance(record.get("payload"), dict) and "timestamp" in record


def join_codex(records: Sequence[JsonObject], _session: str) -> Iterator[Conversation]:
    """Yield the conversations of a session file.

    Raises:
        RefusedError: it holds no assistant message.
    """
    meta = Fields(next((record["payload"] for record in records if record["type"] == "session_meta"), {}))
    model = next((model for record in records if (model := _model(record))), None)
    branches = list(branches_with_replies(_branches(records)))
    if not branches:
        raise RefusedError("no assistant message")
    others = [record for record in records if record["type"] != "response_item" or record["payload"].get("type") in _UNSAID]
    session, instructions = meta.take("id", str, default=None), _instructions(meta)
    for number, branch in enumerate(branches):
        branch.messages[:0] = instructions
        branch.known += len(instructions) if branch.known else 0
        yield _conversation(branch, session, model, {"lines": others} if number == 0 and others else {})


def _model(record: JsonObject) -> str | None:
    model = record["payload"].get("model") if record["type"] == "turn_context" else None
    return model if isinstance(model, str) else None


def _instructions(meta: Fields) -> list[JsonObject]:
    """Return the system message: `instructions` in older versions, `base_instructions` in newer ones."""
    for name in ("base_instructions", "instructions"):
        value = meta.peek(name)
        text = value.get("text") if isinstance(value, dict) else value
        if isinstance(text, str) and text:
            return [{"role": "system", "content": text}]
    return []


def _branches(records: Sequence[JsonObject]) -> Iterator[Branch]:
    items: list[JsonObject] = []
    known = 0
    for record in records:
        payload = record["payload"]
        if record["type"] == "response_item":
            items += [] if payload.get("type") in _UNSAID else [payload]
        elif record["type"] == "compacted":
            yield _branch(items, known)
            items = _replaced(payload)
            known = len(items)
        elif payload.get("type") == "thread_rolled_back":
            yield _branch(items, known)
            items = _rolled_back(items, payload.get("num_turns"))
            known = len(items)
    yield _branch(items, known)


def _branch(items: Sequence[JsonObject], known: int) -> Branch:
    before = list(messages_of(items[:known]))
    return Branch([*before, *messages_of(items[known:])], len(before))


def _replaced(payload: JsonObject) -> list[JsonObject]:
    history = payload.get("replacement_history")
    if isinstance(history, list) and all(isinstance(item, dict) for item in history):
        return list(history)
    return [{"type": "message", "role": "user", "content": str(payload.get("message") or "")}]


def _rolled_back(items: list[JsonObject], turns: Any) -> list[JsonObject]:
    """Return the items before the last `turns` requests, without what Codex said just before them."""
    asked = [place for place, item in enumerate(items) if item.get("role") == "user" and not _is_injected(item)]
    if type(turns) is not int or turns <= 0 or not asked:
        return items
    first, end = asked[0], asked[-min(turns, len(asked))]
    while end > first and _is_injected(items[end - 1]):
        end -= 1
    return items[:end]


def _is_injected(item: JsonObject) -> bool:
    """Whether a message holds a text that no person typed; a message of Codex may hold several of them."""
    content = item.get("content") if item.get("role") in ("user", "developer") else None
    texts = [part.get("text") for part in content if isinstance(part, dict)] if isinstance(content, list) else [content]
    return any(isinstance(text, str) and text.lstrip().startswith(_INJECTED) for text in texts)


def _conversation(branch: Branch, session: str | None, model: str | None, others: JsonObject) -> Conversation:
    read, kinds = read_branch(branch)
    asked = [message.content for message in read.messages if message.role == "user"]
    if not asked:
        raise RefusedError("no user message")
    return Conversation(
        read.messages,
        kinds,
        next((text for text in asked if not text.lstrip().startswith(_INJECTED)), asked[0]),
        session=session,
        model=model,
        extra=others | ({"messages": read.unknown} if read.unknown else {}),
        unread=read.unread,
        **counted(read.messages, read.failed),
    )
