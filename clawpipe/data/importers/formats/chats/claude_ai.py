"""Read Claude.ai's export, `conversations.json`: an array of conversations with the blocks of Anthropic's API.

    {"uuid", "name", "chat_messages": [{"uuid", "sender": "human" | "assistant", "text", "content": [blocks], "attachments"}]}

Where messages name their parents, the branch of the last message is the one that is shown.
"""

from __future__ import annotations

from typing import Any

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.data.importers.formats.chats.tree import THUMB, has_branches, not_shown, read_export, shown_branch
from clawpipe.data.importers.record import Conversation
from clawpipe.data.importers.turns import Turns
from clawpipe.data.importers.values import name_of, object_of, objects_of, text_of, without

_UNSAID = ("token_budget", "flag")  # blocks for the application
_PARENT = "parent_message_uuid"


def is_claude_ai(record: JsonObject) -> bool:
    messages = record.get("chat_messages")
    return isinstance(messages, list) and all("sender" in message for message in objects_of(messages))


def read_claude_ai(record: JsonObject) -> list[Conversation]:
    """Read the branch of a conversation that is shown.

    Raises:
        RefusedError: it is not a conversation.
    """
    listed = objects_of(record["chat_messages"])
    nodes = {str(message.get("uuid") or place): message for place, message in enumerate(listed)}
    leaf = record.get("current_leaf_message_uuid")
    branch = shown_branch(nodes, leaf, _PARENT) if has_branches(nodes, _PARENT) else listed
    turns = Turns()
    for message in branch:
        _add(turns, message)
    known = {
        "session_id": name_of(record, "uuid", "conversation_id"),
        "user": name_of(object_of(record.get("account")), "uuid"),
        "model": text_of(record.get("model")),
    }
    rest = without(record, "chat_messages", "uuid", "account", "model") | {"not_shown": not_shown(nodes, branch)}
    return read_export(turns, known, rest)


def _add(turns: Turns, message: JsonObject) -> None:
    said = _blocks(message) or text_of(message.get("text")) or ""
    if message.get("sender") == "human":
        turns.say("user", [*_attached(message), *([said] if isinstance(said, str) else said)])
        return
    turns.close()
    turns.say("assistant", said)
    if reason := text_of(message.get("stop_reason")):
        turns.mark(finish_reason=reason)
    elif message.get("truncated") is True:
        turns.mark(finish_reason="truncated")
    if thumb := text_of(object_of(message.get("chat_feedback")).get("type")):
        turns.mark(**{THUMB: thumb == "upvote"})


def _blocks(message: JsonObject) -> list[JsonObject]:
    """Return the blocks of a message; a call and its result, which the export may leave without an id, get one of their order."""
    blocks = [block for block in objects_of(message.get("content")) if block.get("type") not in _UNSAID]
    calls = [block for block in blocks if block.get("type") == "tool_use"]
    results = [block for block in blocks if block.get("type") == "tool_result"]
    names: dict[int, JsonObject] = {}
    for place, (call, result) in enumerate(zip(calls, results, strict=False)):
        call_id = text_of(call.get("id")) or f"{message.get('uuid')}_{place}"
        names |= {id(call): {"id": call_id}, id(result): {"tool_use_id": text_of(result.get("tool_use_id")) or call_id}}
    return [block | names.get(id(block), {}) for block in blocks]


def _attached(message: JsonObject) -> list[Any]:
    """Return the texts that the application took out of attached files, which stand before the request."""
    return [text for part in objects_of(message.get("attachments")) if (text := text_of(part.get("extracted_content")))]
