"""Responses that are kept in memory: for `previous_response_id`, and for clients that ask for one again."""

from __future__ import annotations

from typing import NamedTuple

import orjson

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.data.wire.dialects.input_items import listed_items
from clawpipe.data.wire.dialects.responses_in import History

MOST_BYTES = 64 << 20  # of responses and their conversations


class _Kept(NamedTuple):
    messages: bytes
    response: bytes
    items: tuple[str, ...]  # ids of the response's output
    given: bytes  # the items that it was asked with
    previous: str  # the id of the response that it goes on with; empty if there is none

    @property
    def size(self) -> int:
        return len(self.messages) + len(self.response) + len(self.given)


class KeptResponses:
    """Responses and the conversations up to them, by key and id; the oldest go first."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, str], _Kept] = {}
        self._responses: dict[tuple[str, str], str] = {}  # by key and an item's id: the response's id
        self._bytes = 0

    def of(self, key: str) -> History:
        """Return what finds the conversations of a key's responses, and their items."""

        def find(name: str) -> list[JsonObject] | None:
            if kept := self._found.get((key, name)):
                return orjson.loads(kept.messages)
            whole = self.get(key, self._responses.get((key, name), ""))
            return [item for item in whole["output"] if item.get("id") == name] if whole else None

        return find

    def keep(
        self, key: str, response_id: str, asked: JsonObject, messages: list[JsonObject], response: JsonObject | None = None
    ) -> None:
        """Keep the conversation up to a response, unless its request says that it is not to be stored.

        Args:
            asked: the request.
            messages: that request as a chat's, and the answer.
            response: the whole response, for clients that ask for it again.
        """
        if asked.get("store") is False:
            return
        self.forget(key, response_id)
        messages = messages[int(bool(asked.get("instructions"))) :]  # each request says them anew
        items = tuple(item["id"] for item in (response or {}).get("output", ()) if isinstance(item.get("id"), str))
        given, previous = orjson.dumps(listed_items(asked.get("input"))), str(asked.get("previous_response_id") or "")
        kept = _Kept(orjson.dumps(messages), orjson.dumps(response), items, given, previous)
        self._found[key, response_id] = kept
        self._responses |= dict.fromkeys([(key, item) for item in items], response_id)
        self._bytes += kept.size
        while self._bytes > MOST_BYTES:
            self.forget(*next(iter(self._found)))

    def get(self, key: str, response_id: str) -> JsonObject | None:
        kept = self._found.get((key, response_id))
        return orjson.loads(kept.response) if kept else None

    def input_items(self, key: str, response_id: str) -> list[JsonObject] | None:
        """Return the items that a response was asked with: those of kept responses before it, what these said, and its own."""
        if (key, response_id) not in self._found:
            return None
        parts = list[JsonObject]()
        while kept := self._found.get((key, response_id)):
            said = orjson.loads(kept.response) if parts else None
            parts = [*orjson.loads(kept.given), *(said or {}).get("output", ()), *parts]
            response_id = kept.previous
        return parts

    def forget(self, key: str, response_id: str) -> bool:
        """Forget a response. Returns whether it was kept."""
        kept = self._found.pop((key, response_id), None)
        if kept is None:
            return False
        self._bytes -= kept.size
        for item in kept.items:
            self._responses.pop((key, item), None)
        return True
