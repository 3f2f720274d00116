"""Sessions of Codex, `sessions/YYYY/MM/DD/rollout-*.jsonl`: items of the Responses API, a line each, with what happens around them.

    {"timestamp", "type": "session_meta", "payload": {"id", "cwd", "instructions", ...}}
    {"timestamp", "type": "turn_context", "payload": {"model", ...}}
    {"timestamp", "type": "response_item", "payload": {"type": "message" | "reasoning" | "function_call" | ..., ...}}
    {"timestamp", "type": "event_msg", "payload": {"type": "thread_rolled_back", "num_turns": 1}}

A history that was compacted, and one of which turns were rolled back, is another way of the session, and a conversation of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from clawpipe.importers.branches import Way, read_way, ways_that_add
from clawpipe.importers.record import Conversation, Fields, counted
from clawpipe.importers.responses import messages_of
from clawpipe.importers.strict_json import RefusedError

_INJECTED = ("# AGENTS.md", "<environment_context>", "<user_instructions>", "<permissions", "<INSTRUCTIONS>")  # no person typed it


def is_codex(record: dict[str, Any]) -> bool:
    return isinstance(record.get("type"), str) and isinstance(record.get("payload"), dict) and "timestamp" in record


def join_codex(records: Sequence[dict[str, Any]], file: str) -> Iterator[Conversation]:
    """The conversations of a session's file.

    Raises:
        RefusedError: nobody says anything in it.
    """
    meta = Fields(next((record["payload"] for record in records if record["type"] == "session_meta"), {}))
    model = next((model for record in records if (model := _model(record))), None)
    ways = list(ways_that_add(_ways(records)))
    if not ways:
        raise RefusedError("no assistant message")
    others = [record for record in records if record["type"] != "response_item"]
    session, instructions = meta.take("id", str, default=None), _instructions(meta)
    for number, way in enumerate(ways):
        way.messages[:0] = instructions
        way.known += len(instructions) if way.known else 0
        yield _conversation(way, session, model, {"lines": others} if number == 0 and others else {})


def _model(record: dict[str, Any]) -> str | None:
    model = record["payload"].get("model") if record["type"] == "turn_context" else None
    return model if isinstance(model, str) else None


def _instructions(meta: Fields) -> list[dict[str, Any]]:
    """The system message, which older versions call `instructions` and newer ones `base_instructions`."""
    for name in ("base_instructions", "instructions"):
        value = meta.peek(name)
        text = value.get("text") if isinstance(value, dict) else value
        if isinstance(text, str) and text:
            return [{"role": "system", "content": text}]
    return []


def _ways(records: Sequence[dict[str, Any]]) -> Iterator[Way]:
    items: list[dict[str, Any]] = []
    known = 0
    for record in records:
        payload = record["payload"]
        if record["type"] == "response_item":
            items.append(payload)
        elif record["type"] == "compacted":
            yield _way(items, known)
            items = _replaced(payload)
            known = len(items)
        elif payload.get("type") == "thread_rolled_back":
            yield _way(items, known)
            items = _rolled_back(items, payload.get("num_turns"))
            known = len(items)
    yield _way(items, known)


def _way(items: Sequence[dict[str, Any]], known: int) -> Way:
    before = list(messages_of(items[:known]))
    return Way([*before, *messages_of(items[known:])], len(before))


def _replaced(payload: dict[str, Any]) -> list[dict[str, Any]]:
    history = payload.get("replacement_history")
    if isinstance(history, list) and all(isinstance(item, dict) for item in history):
        return list(history)
    return [{"type": "message", "role": "user", "content": str(payload.get("message") or "")}]


def _rolled_back(items: list[dict[str, Any]], turns: Any) -> list[dict[str, Any]]:
    """The items before the last so many requests."""
    asked = [place for place, item in enumerate(items) if item.get("role") == "user"]
    count = turns if type(turns) is int and turns > 0 else 0
    return items[: asked[-count]] if 0 < count <= len(asked) else items if not count else []


def _conversation(way: Way, session: str | None, model: str | None, others: dict[str, Any]) -> Conversation:
    said, kinds = read_way(way)
    asked = [message.content for message in said.messages if message.role == "user"]
    if not asked:
        raise RefusedError("no user message")
    return Conversation(
        said.messages,
        kinds,
        next((text for text in asked if not text.lstrip().startswith(_INJECTED)), asked[0]),
        session=session,
        model=model,
        extra=others | ({"messages": said.unknown} if said.unknown else {}),
        unread=said.unread,
        **counted(said.messages, said.failed),
    )
