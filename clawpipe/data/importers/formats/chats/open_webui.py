"""Read Open WebUI's export: an array of chats, each a tree of messages.

    {"id", "user_id", "chat": {"models", "history": {"messages": {ID: {"role", "content", "parentId", ...}}, "currentId"}}}

Thoughts and calls of tools stand in the text, in `<details>` of a type. A thumb is the `annotation` of a message.
"""

from __future__ import annotations

import html
import re

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.data.importers.formats.chats.tree import THUMB, not_shown, read_export, shown_branch
from clawpipe.data.importers.record import Conversation
from clawpipe.data.importers.turns import Turns
from clawpipe.data.importers.values import name_of, object_of, objects_of, text_of, unspelled, without

_DETAILS = re.compile(r'<details\s+type="(reasoning|tool_calls|code_interpreter)"([^>]*)>(.*?)</details>\s*', re.DOTALL)
_ATTRIBUTE = re.compile(r'(\w+)="([^"]*)"')
_FENCED = re.compile(r"```\w*\n(.*?)\n?```", re.DOTALL)
_SUMMARY = re.compile(r"\s*<summary>.*?</summary>\s*", re.DOTALL)


def is_open_webui(record: JsonObject) -> bool:
    chat = object_of(record.get("chat")) or record
    return isinstance(object_of(chat.get("history")).get("messages"), dict)


def read_open_webui(record: JsonObject) -> list[Conversation]:
    """Read the branch of a chat that is shown.

    Raises:
        RefusedError: it is not a conversation.
    """
    chat = object_of(record.get("chat")) or record
    history = object_of(chat["history"])
    nodes = {name: object_of(node) for name, node in history["messages"].items()}
    branch = shown_branch(nodes, history.get("currentId"), "parentId")
    turns = Turns()
    if system := text_of(chat.get("system")) or text_of(object_of(chat.get("params")).get("system")):
        turns.say("system", system)
    for message in branch:
        _add(turns, message)
    models = [model for message in branch if (model := text_of(message.get("model")))]
    known = {"session_id": name_of(record, "id"), "user": name_of(record, "user_id"), "model": models[0] if models else None}
    rest = without(record, "chat", "id", "user_id", "history", "messages") | {"not_shown": not_shown(nodes, branch)}
    if "chat" in record:
        rest["chat"] = without(chat, "history", "messages")
    return read_export(turns, known, rest)


def _add(turns: Turns, message: JsonObject) -> None:
    said = message.get("content")
    if message.get("role") != "assistant":
        pictures = [
            {"type": str(part.get("type"))} | part for part in objects_of(message.get("files")) if part.get("type") == "image"
        ]
        turns.say(str(message.get("role")), [*(said if isinstance(said, list) else [said]), *pictures] if pictures else said)
        return
    turns.close()
    if isinstance(said, list):
        turns.say("assistant", said)
    else:
        _add_reply(turns, said if isinstance(said, str) else "")
    if message.get("error"):
        turns.mark(finish_reason="error")
    elif message.get("done") is False:
        turns.mark(finish_reason="unfinished")
    rating = object_of(message.get("annotation")).get("rating")
    if rating in (1, -1):
        turns.mark(**{THUMB: rating == 1})


def _add_reply(turns: Turns, said: str) -> None:
    """Add a text with its thoughts and calls in their order."""
    at = 0
    for found in _DETAILS.finditer(said):
        if before := said[at : found.start()].strip():
            turns.say("assistant", before)
        _add_details(turns, found[1], found[2], found[3])
        at = found.end()
    turns.say("assistant", said[at:].strip() if at else said)


def _add_details(turns: Turns, kind: str, attributes: str, body: str) -> None:
    if kind == "tool_calls":
        fields = {name: html.unescape(value) for name, value in _ATTRIBUTE.findall(attributes)}
        turns.call(fields.get("name"), unspelled(unspelled_text(fields.get("arguments"))) or {}, fields.get("id"))
        if fields.get("result"):
            turns.answer(unspelled_text(fields["result"]), fields.get("id"), fields.get("name"))
        return
    text = html.unescape(_SUMMARY.sub("", body, count=1)).strip()
    if kind == "code_interpreter":
        found = _FENCED.fullmatch(text)
        turns.call(kind, {"code": found[1] if found else text})
        turns.answer(unspelled_text(html.unescape(dict(_ATTRIBUTE.findall(attributes)).get("output", ""))))
        return
    turns.think("\n".join(line.removeprefix(">").removeprefix(" ") for line in text.splitlines()))


def unspelled_text(text: str | None) -> str:
    """Return a text that was encoded as JSON once more."""
    found = unspelled(f"[{text}]") if text and text.startswith('"') else None
    return found[0] if isinstance(found, list) and len(found) == 1 and isinstance(found[0], str) else text or ""
