"""Branches of sessions: each branch becomes a conversation, in which the messages of an earlier branch are context.

A session file is only appended to. A user who goes back to an earlier message, or a compaction of the history, begins a new branch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.core.conversation.messages import Message
from clawpipe.data.importers.message import ReadMessages, read_messages
from clawpipe.data.importers.record import Kind, main_but_muted


@dataclass
class Branch:
    """The messages of one branch in the form of the chat API; the first `known` of them belong to an earlier branch.

    Attributes:
        muted: indices of assistant messages that are context.
    """

    messages: list[JsonObject] = field(default_factory=list)
    known: int = 0
    muted: set[int] = field(default_factory=set)

    def back_to(self, length: int) -> Branch:
        """Return the branch that continues after the first `length` messages."""
        return Branch(self.messages[:length], length, {one for one in self.muted if one < length})

    @property
    def adds_a_reply(self) -> bool:
        """Whether the branch has an assistant message that no earlier branch holds."""
        return any(message.get("role") == "assistant" for message in self.messages[self.known :])


def read_branch(branch: Branch) -> tuple[ReadMessages, tuple[Kind, ...]]:
    """Return the messages of a branch, and the kinds of its turns.

    Raises:
        RefusedError: the messages are not a conversation.
    """
    context = set(range(branch.known)) | branch.muted
    given = [message | {"weight": 0} if place in context else message for place, message in enumerate(branch.messages)]
    read = read_messages(given)
    return read, main_but_muted(read.messages, read.muted)


class SharedMessages:
    """Reads messages that several branches hold once: a session may have hundreds of branches with one long history."""

    def __init__(self) -> None:
        self._read: dict[int, tuple[JsonObject, ReadMessages]] = {}  # with the message itself, whose identity is the key

    def branch(self, branch: Branch) -> tuple[ReadMessages, tuple[Kind, ...]]:
        """Return the messages of a branch, and the kinds of its turns.

        Raises:
            RefusedError: the messages are not a conversation.
        """
        whole = ReadMessages((), [])
        messages, unread, muted, failed = list[Message](), set[int](), set[int](), dict[int, bool]()
        for place, message in enumerate(branch.messages):
            read, start = self._one(message, place), len(messages)
            messages += read.messages
            whole.unknown.extend(one | {"message": start + one["message"]} for one in read.unknown)
            unread.update(start + one for one in read.unread)
            failed.update({start + one: mark for one, mark in read.failed.items()})
            is_context = place < branch.known or place in branch.muted
            muted.update(range(start, len(messages)) if is_context else (start + one for one in read.muted))
        whole = whole._replace(messages=tuple(messages), unread=frozenset(unread), muted=frozenset(muted), failed=failed)
        return whole, main_but_muted(whole.messages, whole.muted)

    def _one(self, message: JsonObject, place: int) -> ReadMessages:
        if id(message) not in self._read:
            self._read[id(message)] = message, read_messages([message], first=place)
        return self._read[id(message)][1]


def alike_in(records: Sequence[JsonObject]) -> JsonObject:
    """Return the fields that have the same value in all records."""
    return (
        {name: value for name, value in records[0].items() if all(record.get(name) == value for record in records)}
        if records
        else {}
    )


def branches_with_replies(branches: Iterable[Branch]) -> Iterator[Branch]:
    return (branch for branch in branches if branch.adds_a_reply)
