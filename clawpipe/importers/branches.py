"""Sessions that go back: what was said on each way, with the part that another way has as its own as context.

An agent's session file is written on and on; who goes back to an earlier message and says something else, or has the history
compacted, begins another way. Every way is a conversation.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from clawpipe.importers.message import ReadMessages, read_messages
from clawpipe.importers.record import Kind, main_but_muted


@dataclass
class Way:
    """Messages in the form of the chat API, of which the first `known` are another way's own.

    Attributes:
        muted: which of the messages are context though the assistant's.
    """

    messages: list[dict[str, Any]] = field(default_factory=list)
    known: int = 0
    muted: set[int] = field(default_factory=set)

    def back_to(self, length: int) -> Way:
        """The way that goes on from the first `length` messages."""
        return Way(self.messages[:length], length, {one for one in self.muted if one < length})

    @property
    def adds_a_reply(self) -> bool:
        """Whether the assistant says something that no other way holds."""
        return any(message.get("role") == "assistant" for message in self.messages[self.known :])


def read_way(way: Way) -> tuple[ReadMessages, tuple[Kind, ...]]:
    """Messages of a way, and the kinds of its turns.

    Raises:
        RefusedError: it is no conversation.
    """
    context = set(range(way.known)) | way.muted
    given = [message | {"weight": 0} if place in context else message for place, message in enumerate(way.messages)]
    said = read_messages(given)
    return said, main_but_muted(said.messages, said.muted)


def alike_in(rests: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """What all of them say alike."""
    return {name: value for name, value in rests[0].items() if all(rest.get(name) == value for rest in rests)} if rests else {}


def ways_that_add(ways: Iterable[Way]) -> Iterator[Way]:
    return (way for way in ways if way.adds_a_reply)
