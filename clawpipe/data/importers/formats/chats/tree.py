"""Exports that keep every branch of a conversation: the branch that the application shows, and the thumbs of its turns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.data.importers.formats.chat import read_chat
from clawpipe.data.importers.record import Conversation, Judgement
from clawpipe.data.importers.turns import Turns

THUMB = "thumb"  # field of a message that a user judged: true or false


def shown_branch(nodes: Mapping[str, JsonObject], leaf: Any, parent: str) -> list[JsonObject]:
    """Return the messages from the first one to the leaf.

    Args:
        nodes: messages by their id.
        leaf: id of the last message that is shown; by default that of the last message.
        parent: name of the field with the id of the message before.
    """
    branch, seen = list[JsonObject](), set[str]()
    at = leaf if isinstance(leaf, str) and leaf in nodes else next(iter(list(nodes)[-1:]), None)
    while isinstance(at, str) and at in nodes and at not in seen:
        seen.add(at)
        branch.append(nodes[at])
        at = nodes[at].get(parent)
    return branch[::-1]


def has_branches(nodes: Mapping[str, JsonObject], parent: str) -> bool:
    """Whether any message names another one as the message before."""
    return any(isinstance(before := node.get(parent), str) and before in nodes for node in nodes.values())


def not_shown(nodes: Mapping[str, JsonObject], branch: list[JsonObject]) -> list[JsonObject]:
    """Return the messages of other branches."""
    shown = {id(node) for node in branch}
    return [node for node in nodes.values() if id(node) not in shown]


def read_export(turns: Turns, known: JsonObject, rest: JsonObject) -> list[Conversation]:
    """Read the messages of a chat with the thumbs of its turns.

    Args:
        known: what the chat API knows by the same names: session_id, user, model.
        rest: all other fields of the export; empty ones are left out.

    Raises:
        RefusedError: the messages are not a conversation.
    """
    kept = {name: value for name, value in rest.items() if value not in (None, "", [], {})}
    row = {name: value for name, value in known.items() if value} | ({"export": kept} if kept else {})
    return [_judged(one) for one in read_chat(row | {"messages": turns.messages})]


def _judged(conversation: Conversation) -> Conversation:
    marked = [part for part in conversation.extra.get("messages", ()) if isinstance(part.get(THUMB), bool)]
    judged = [_judgement(conversation, part["message"], part[THUMB]) for part in marked]
    return replace(conversation, judgements=(*conversation.judgements, *judged)) if judged else conversation


def _judgement(conversation: Conversation, place: int, up: bool) -> Judgement:
    turn = sum(message.role == "assistant" for message in conversation.messages[:place])
    return Judgement(float(up), "user", up, turn=turn, reason="thumb of the turn")
