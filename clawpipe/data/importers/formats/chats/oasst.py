"""Read trees of messages of Open Assistant: a tree on each line, or a message on each line, as on its page of the hub.

    {"message_tree_id", "tree_state", "prompt": {"message_id", "text", "role": "prompter", "rank", "replies": [{...}]}}
    {"message_id", "parent_id", "message_tree_id", "text", "role": "prompter" | "assistant", "rank", "deleted", "review_result"}

Each way to a last answer is a conversation; what an earlier one holds is context in it. Of answers that people ranked the best is
taught, and is chosen before each other one in a preference. What was deleted, or failed its review, is left out with all below it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.core.conversation.messages import Message, Role
from clawpipe.data.importers.formats.branches import Branch, read_branch
from clawpipe.data.importers.record import Conversation, Preference, counted, first_request
from clawpipe.data.importers.strict_json import RefusedError
from clawpipe.data.importers.values import object_of, objects_of, text_of, without

_ROLES: dict[str, Role] = {"prompter": "user", "assistant": "assistant"}
_NODE = ("message_id", "parent_id", "message_tree_id", "text", "role")
Way = tuple[JsonObject, ...]  # the nodes from the first message to one


def is_oasst(record: JsonObject) -> bool:
    return "message_tree_id" in record and text_of(object_of(record.get("prompt")).get("text")) is not None


def is_oasst_message(record: JsonObject) -> bool:
    names_itself = isinstance(record.get("message_id"), str) and isinstance(record.get("parent_id"), str | None)
    return names_itself and all(name in record for name in _NODE) and str(record["role"]) in _ROLES


def read_oasst(record: JsonObject) -> list[Conversation | Preference]:
    """Read a tree.

    Raises:
        RefusedError: no answer in it is left.
    """
    found = list(_read(object_of(record["prompt"]), text_of(record["message_tree_id"]), without(record, "prompt")))
    if not found:
        raise RefusedError("a tree of messages without an answer that is left")
    return found


def join_oasst(records: Sequence[JsonObject], session: str) -> Iterator[Conversation | Preference]:
    """Yield the conversations and preferences of all trees in a file.

    Raises:
        RefusedError: no answer in any of them is left.
    """
    below: dict[Any, list[JsonObject]] = defaultdict(list)
    for record in records:
        below[record["parent_id"]].append(record)
    found = [part for root in below[None] for part in _read(_grown(root, below), text_of(root["message_tree_id"]), {})]
    if not found:
        raise RefusedError("a tree of messages without an answer that is left")
    yield from found


def _grown(node: JsonObject, below: Mapping[Any, list[JsonObject]]) -> JsonObject:
    """Return a message with its replies in it. No reply stands above itself: only what hangs on a first message is reached."""
    return node | {"replies": [_grown(reply, below) for reply in below.get(node["message_id"], ())]}


def _read(root: JsonObject, tree: str | None, rest: JsonObject) -> Iterator[Conversation | Preference]:
    """Yield the conversations of a tree, and the preferences of its ranked answers."""
    known = set[int]()
    for way in _ways((root,)) if _is_left(root) else ():
        new = next((place for place, node in enumerate(way) if id(node) not in known), len(way))
        known.update(map(id, way))
        worse = {place for place, node in enumerate(way) if place and node in _worse(way[place - 1])}
        if any(_speaks(node) and place not in worse for place, node in enumerate(way) if place >= new):
            yield _conversation(Branch([_message(node) for node in way], new, worse), tree, rest)
    yield from _preferences((root,), tree) if _is_left(root) else ()


def _ways(way: Way) -> Iterator[Way]:
    """Yield each way that goes on from one, to its last answer."""
    replies = _replies(way[-1])
    for reply in replies:
        yield from _ways((*way, reply))
    if not replies and any(map(_speaks, way)):
        yield way if _speaks(way[-1]) else way[:-1]


def _replies(node: JsonObject) -> list[JsonObject]:
    return [reply for reply in objects_of(node.get("replies")) if _is_left(reply)]


def _is_left(node: JsonObject) -> bool:
    said = text_of(node.get("text")) is not None and str(node.get("role")) in _ROLES
    return said and node.get("deleted") is not True and node.get("review_result") is not False


def _speaks(node: JsonObject) -> bool:
    return node["role"] == "assistant"


def _ranked(node: JsonObject) -> list[JsonObject]:
    """Return the ranked answers to a message, the best one first."""
    ranked = [reply for reply in _replies(node) if _speaks(reply) and type(reply.get("rank")) in (int, float)]
    return sorted(ranked, key=lambda reply: reply["rank"])


def _worse(node: JsonObject) -> list[JsonObject]:
    """Return the answers to a message that are not the best one; none where nobody ranked any."""
    best = _ranked(node)[:1]
    return [reply for reply in _replies(node) if _speaks(reply) and reply not in best] if best else []


def _message(node: JsonObject) -> JsonObject:
    return without(node, "text", "role", "replies") | {"role": _ROLES[node["role"]], "content": node["text"]}


def _conversation(branch: Branch, tree: str | None, rest: JsonObject) -> Conversation:
    read, kinds = read_branch(branch)
    extra = {"tree": rest, "messages": read.unknown}
    return Conversation(
        read.messages,
        kinds,
        first_request(read.messages),
        session=tree,
        extra={name: value for name, value in extra.items() if value},
        **counted(read.messages, read.failed),
    )


def _preferences(way: Way, tree: str | None) -> Iterator[Preference]:
    best, *others = _ranked(way[-1]) or [JsonObject()]
    prompt = tuple(Message(_ROLES[node["role"]], node["text"]) for node in way)
    for other in others:
        if other["text"] != best["text"]:
            chosen, rejected = (Message("assistant", node["text"]) for node in (best, other))
            yield Preference(prompt, (chosen,), (rejected,), extra={"ranks": [best["rank"], other["rank"]]}, session=tree)
    for reply in _replies(way[-1]):
        yield from _preferences((*way, reply), tree)
