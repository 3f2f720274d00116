"""What the writers of the dialects have in common."""

from __future__ import annotations

import json
from typing import Protocol

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.data.wire.dialects.pieces import ChatPieces

Event = JsonObject  # with its name under `type`


class Writer(Protocol):
    """Writes the answer of one chat completion in a dialect: as events while it comes, and whole when it has ended.

    Attributes:
        id: of the answer, as the client is told.
        read: what was read of the chat's answer.
    """

    id: str
    read: ChatPieces

    def add(self, body: JsonObject) -> list[Event]:
        """Return the events of a whole answer or of one chunk. Raises UnheldError if its calls cannot be told apart."""
        ...

    def end(self) -> list[Event]:
        """Return the last events. Raises UnheldError if a call has no name."""
        ...

    def fail(self, status: int, message: str, param: str | None, code: str | None) -> list[Event]:
        """Return the events of an answer that breaks off."""
        ...

    def whole(self) -> JsonObject:
        """Return the whole answer, after `end`."""
        ...


def event_text(event: Event) -> str:
    """Return an event as a server sends it."""
    return f"event: {event['type']}\ndata: {json.dumps(event, ensure_ascii=False, separators=(',', ':'))}\n\n"


def count_of(usage: JsonObject, details: str, name: str) -> int:
    """Return a figure of a usage's details; 0 if the engine does not say it."""
    given = usage.get(details)
    value = given.get(name) if isinstance(given, dict) else None
    return value if isinstance(value, int) else 0
