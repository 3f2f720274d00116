"""Server-sent events: split the engine's stream into them, and write them."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator
from typing import Any

import aiohttp
import orjson

from clawpipe.core.basics.json_types import JsonObject

DONE = b"data: [DONE]\n\n"
_END = re.compile(rb"(?:\r\n|\n|\r(?!\n)){2}")
_END_BYTES = 4  # of the longest end
_ERROR = re.compile(rb"""error:|event: ?error\s*\Z|\{\s*"error\"""")
_LONGEST = 64 << 20  # bytes of an event; the first one may hold the prompt's tokens
_SHALLOW = 250  # objects and lists; so few cannot be nested deeper than orjson writes


class Splitter:
    """Splits bytes into events, wherever the bytes are cut."""

    def __init__(self) -> None:
        self._rest, self._searched = bytearray(), 0  # what follows the last end, and how much of it holds none

    def add(self, data: bytes) -> Iterator[bytes]:
        """Yield the events that end in these bytes, each with a blank line behind it.

        Raises:
            aiohttp.ClientPayloadError: an event does not end.
        """
        self._rest += data
        size = len(self._rest) - self._rest.endswith(b"\r")  # the line may end with the next byte
        ends = [match.span() for match in _END.finditer(self._rest, max(0, self._searched - _END_BYTES), size)]
        starts = [0, *(end for _, end in ends)]
        whole = [bytes(self._rest[start:end]) for start, (end, _) in zip(starts, ends, strict=False)]
        del self._rest[: starts[-1]]
        self._searched = size - starts[-1]
        yield from (event + b"\n\n" for part in whole if (event := part.lstrip(b"\r\n")))
        if len(self._rest) > _LONGEST:
            raise aiohttp.ClientPayloadError("an event without an end")

    def end(self) -> Iterator[bytes]:
        """Yield the last event, if it is whole but for the blank line.

        Raises:
            aiohttp.ClientPayloadError: it is cut off.
        """
        event = bytes(self._rest).strip()
        if not event or event.startswith(b":"):
            return
        if not is_done(event) and loaded(data_of(event)) is None:
            raise aiohttp.ClientPayloadError("half an event")
        yield event + b"\n\n"


async def events(reply: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    """Yield the whole events of a reply as they come, each with a blank line behind it.

    Raises:
        aiohttp.ClientError: the engine broke off, the last event is cut off, or one does not end.
    """
    splitter = Splitter()
    async for data in reply.content.iter_any():
        for event in splitter.add(data):
            yield event
    for event in splitter.end():
        yield event


def is_done(event: bytes) -> bool:
    """Whether an event is the last one of OpenAI's streams."""
    return data_of(event).strip() == b"[DONE]"


def is_error(event: bytes) -> bool:
    """Whether an event is an error by its name, by the name of its field (older llama.cpp) or without a field (older Ollama). The
    data of an event may say so, too."""
    return any(_ERROR.match(line) for line in event.splitlines())


def data_of(event: bytes) -> bytes:
    """Return the data of an event, which its name may precede; empty if it has none."""
    return b"\n".join(line[5:] for line in event.splitlines() if line.startswith(b"data:"))


def event_of(body: JsonObject) -> bytes:
    return b"data: " + orjson.dumps(body) + b"\n\n"


def loaded(data: bytes) -> Any:
    """Return what JSON bytes hold; None if they are not JSON, or nested too deep to be written again."""
    try:
        value = orjson.loads(data)
    except orjson.JSONDecodeError:
        return None
    return None if is_too_deep(data, value) else value


def is_too_deep(data: bytes, value: Any) -> bool:
    """Whether JSON bytes hold a value that is nested too deep to be written again."""
    if data.count(b"[") + data.count(b"{") <= _SHALLOW:
        return False
    try:
        orjson.dumps(value)
    except orjson.JSONEncodeError:
        return True
    return False
