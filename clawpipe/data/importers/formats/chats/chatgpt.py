"""Read ChatGPT's export, `conversations.json`: an array of conversations, each a tree of messages.

    {"title", "mapping": {ID: {"message": {"author": {"role"}, "content": {"content_type", "parts"}}, "parent"}}, "current_node"}

The branch that leads to `current_node` is the one that is shown; answers that were asked for again stay in `extra`. A message of
the assistant to a `recipient` is a call of that tool. Custom instructions are the system message.
"""

from __future__ import annotations

from typing import Any

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.data.importers.formats.chats.tree import not_shown, read_export, shown_branch
from clawpipe.data.importers.record import Conversation
from clawpipe.data.importers.turns import Turns
from clawpipe.data.importers.values import name_of, object_of, objects_of, text_of, without

_ABOUT = ("user_profile", "user_instructions")  # custom instructions
_UNSAID = ("reasoning_recap", "model_editable_context")  # what the application shows or notes beside the conversation
_ENDS = {"stop": "stop", "max_tokens": "length"}
_WHOLE = ("finished_successfully", None)


def is_chatgpt(record: JsonObject) -> bool:
    mapping = record.get("mapping")
    return isinstance(mapping, dict) and bool(mapping) and all("message" in object_of(node) for node in mapping.values())


def read_chatgpt(record: JsonObject) -> list[Conversation]:
    """Read the branch of a conversation that is shown.

    Raises:
        RefusedError: it is not a conversation.
    """
    nodes = {name: object_of(node) for name, node in record["mapping"].items()}
    branch = shown_branch(nodes, record.get("current_node"), "parent")
    turns, models = Turns(), list[str]()
    for message in (object_of(node.get("message")) for node in branch):
        _add(turns, message)
        models += [model] if (model := text_of(object_of(message.get("metadata")).get("model_slug"))) else []
    others = [node["message"] for node in not_shown(nodes, branch) if node.get("message")]
    known = {
        "session_id": name_of(record, "conversation_id", "id"),
        "model": models[0] if models else text_of(record.get("default_model_slug")),
    }
    rest = without(record, "mapping", "current_node", "conversation_id", "id") | {"not_shown": others}
    return read_export(turns, known, rest)


def _add(turns: Turns, message: JsonObject) -> None:
    role, content = object_of(message.get("author")).get("role"), object_of(message.get("content"))
    if content.get("content_type") == "user_editable_context":
        said = [text for name in _ABOUT if (text := text_of(content.get(name)))]
        turns.say("system", "\n".join(said))
    elif role == "assistant":
        _add_reply(turns, message, content)
    elif role == "tool":
        failed = True if content.get("content_type") == "system_error" else None
        turns.answer(_said(content), name=object_of(message.get("author")).get("name"), failed=failed)
    elif role in ("user", "system") and (said := _said(content)):
        turns.say(role, said)


def _add_reply(turns: Turns, message: JsonObject, content: JsonObject) -> None:
    kind, recipient = content.get("content_type"), message.get("recipient")
    if kind in _UNSAID:
        return
    if kind == "thoughts":
        for thought in objects_of(content.get("thoughts")):
            turns.think(thought.get("content") or thought.get("summary"))
        return
    if isinstance(recipient, str) and recipient not in ("all", "assistant", ""):
        said = _said(content)
        arguments = object_of(said) if isinstance(said, str) else {}
        turns.call(recipient, arguments or said, free=not arguments)
    else:
        turns.say("assistant", _said(content), **({"weight": 0} if message.get("weight") == 0 else {}))
    if end := _end(message):
        turns.mark(finish_reason=end)


def _end(message: JsonObject) -> str | None:
    """Return why an answer ended; None where it is whole, or the export does not say."""
    details = object_of(object_of(message.get("metadata")).get("finish_details"))
    if (kind := text_of(details.get("type"))) and kind != "stop":
        return _ENDS.get(kind, kind)
    return None if message.get("status") in _WHOLE else str(message["status"])


def _said(content: JsonObject) -> str | list[Any]:
    """Return the text of a message, or its parts where some are no text."""
    parts = content.get("parts")
    if not isinstance(parts, list):
        return next((text for name in ("text", "result") if (text := text_of(content.get(name)))), "")
    if all(isinstance(part, str) for part in parts):
        return "\n".join(filter(None, parts))
    return [_part(part) for part in parts if part]


def _part(part: Any) -> Any:
    fields = object_of(part)
    if not isinstance(part, dict):
        return part
    if text_of(fields.get("text")):  # what was said aloud
        return fields["text"]
    return {"type": str(fields.get("content_type") or "unknown"), "id": name_of(fields, "asset_pointer")} | fields
