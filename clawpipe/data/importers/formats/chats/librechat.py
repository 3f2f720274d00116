"""Read LibreChat's export: one conversation in a file, its messages in a list or, if it is recursive, in their parents' `children`.

    {"conversationId", "endpoint", "title", "messages": [{"messageId", "parentMessageId", "isCreatedByUser", "text", "content"}]}

The branch of the last message is the one that is shown.
"""

from __future__ import annotations

from collections.abc import Iterator

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.data.importers.formats.chats.tree import THUMB, has_branches, not_shown, read_export, shown_branch
from clawpipe.data.importers.record import Conversation
from clawpipe.data.importers.turns import Turns
from clawpipe.data.importers.values import name_of, object_of, objects_of, text_of, without

_PARENT = "parentMessageId"
_THUMBS = {"thumbsUp": True, "thumbsDown": False}


def is_librechat(record: JsonObject) -> bool:
    messages = objects_of(record.get("messages"))
    return bool(messages) and all("isCreatedByUser" in message for message in messages)


def read_librechat(record: JsonObject) -> list[Conversation]:
    """Read the branch of a conversation that is shown.

    Raises:
        RefusedError: it is not a conversation.
    """
    listed = list(_flat(objects_of(record["messages"])))
    nodes = {str(message.get("messageId") or place): message for place, message in enumerate(listed)}
    branch = shown_branch(nodes, None, _PARENT) if has_branches(nodes, _PARENT) else listed
    options = object_of(record.get("options"))
    turns = Turns()
    if system := text_of(options.get("promptPrefix")) or text_of(options.get("system")):
        turns.say("system", system)
    for message in branch:
        _add(turns, message)
    models = [model for message in branch if (model := text_of(message.get("model")))]
    known = {
        "session_id": name_of(record, "conversationId"),
        "user": name_of(record, "user"),
        "model": models[0] if models else text_of(options.get("model")),
    }
    others = [without(message, "children") for message in not_shown(nodes, branch)]
    return read_export(turns, known, without(record, "messages", "conversationId", "user") | {"not_shown": others})


def _flat(messages: list[JsonObject]) -> Iterator[JsonObject]:
    """Yield messages before their children."""
    for message in messages:
        yield message
        yield from _flat(objects_of(message.get("children")))


def _add(turns: Turns, message: JsonObject) -> None:
    text = message.get("text") if isinstance(message.get("text"), str) else ""
    if message.get("isCreatedByUser"):
        turns.say("user", text)
        return
    turns.close()
    parts = objects_of(message.get("content"))
    for part in parts:
        _add_part(turns, part)
    if not parts:
        turns.say("assistant", text)
    if message.get("error") or message.get("unfinished"):
        turns.mark(finish_reason="error" if message.get("error") else "unfinished")
    elif reason := text_of(message.get("finish_reason")):
        turns.mark(finish_reason=reason)
    thumb = text_of(object_of(message.get("feedback")).get("rating"))
    if thumb in _THUMBS:
        turns.mark(**{THUMB: _THUMBS[thumb]})


def _add_part(turns: Turns, part: JsonObject) -> None:
    kind = part.get("type")
    if kind == "think":
        turns.think(part.get("think"))
    elif kind == "tool_call":
        call = object_of(part.get("tool_call"))
        turns.call(call.get("name"), call.get("args", {}), call.get("id"))
        if call.get("output") is not None:
            turns.answer(call["output"], call.get("id"), call.get("name"))
    elif kind == "text" and isinstance(part.get("text"), dict):  # of OpenAI's assistants
        turns.say("assistant", str(part["text"].get("value") or ""))
    else:
        turns.say("assistant", [part])
