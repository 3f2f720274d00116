"""Responses that are kept in memory: for `previous_response_id`, and for clients that ask for one again."""

from __future__ import annotations

from typing import NamedTuple

import orjson

from clawpipe.json_types import JsonObject
from clawpipe.wire.dialects.responses_in import History

MOST_BYTES = 64 << 20  # of responses and their conversations


class _Kept(NamedTuple):
    messages: bytes
    response: bytes

    @property
    def size(self) -> int:
        return len(self.messages) + len(self.response)


class KeptResponses:
    """Responses and the conversations up to them, by key and id; the oldest go first."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, str], _Kept] = {}
        self._bytes = 0

    def of(self, key: str) -> History:
        """Return what finds the conversations of a key's responses."""
        return lambda response: orjson.loads(kept.messages) if (kept := self._found.get((key, response))) else None

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
        kept = self._found[key, response_id] = _Kept(orjson.dumps(messages), orjson.dumps(response))
        self._bytes += kept.size
        while self._bytes > MOST_BYTES:
            self.forget(*next(iter(self._found)))

    def get(self, key: str, response_id: str) -> JsonObject | None:
        kept = self._found.get((key, response_id))
        return orjson.loads(kept.response) if kept else None

    def forget(self, key: str, response_id: str) -> bool:
        """Forget a response. Returns whether it was kept."""
        kept = self._found.pop((key, response_id), None)
        self._bytes -= kept.size if kept else 0
        return kept is not None
