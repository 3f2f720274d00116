"""Responses that are kept in memory: for `previous_response_id`, and for clients that ask for one again."""

from __future__ import annotations

from typing import NamedTuple

import orjson

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.data.wire.dialects.responses_in import History

MOST_BYTES = 64 << 20  # of responses and their conversations


class _Kept(NamedTuple):
    messages: bytes
    response: bytes
    items: tuple[str, ...]  # ids of the response's output

    @property
    def size(self) -> int:
        return len(self.messages) + len(self.response)


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
        kept = self._found[key, response_id] = _Kept(orjson.dumps(messages), orjson.dumps(response), items)
        self._responses |= dict.fromkeys([(key, item) for item in items], response_id)
        self._bytes += kept.size
        while self._bytes > MOST_BYTES:
            self.forget(*next(iter(self._found)))

    def get(self, key: str, response_id: str) -> JsonObject | None:
        kept = self._found.get((key, response_id))
        return orjson.loads(kept.response) if kept else None

    def forget(self, key: str, response_id: str) -> bool:
        """Forget a response. Returns whether it was kept."""
        kept = self._found.pop((key, response_id), None)
        if kept is None:
            return False
        self._bytes -= kept.size
        for item in kept.items:
            self._responses.pop((key, item), None)
        return True
