"""Server-sent events: split the engine's stream into them, and write them."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import orjson

from clawpipe.json_types import JsonObject

DONE = b"data: [DONE]\n\n"
_END = re.compile(rb"\r?\n\r?\n")
_LONGEST = 64 << 20  # bytes of an event; the first one may hold the prompt's tokens


async def events(reply: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    """Yield the events of a reply as they come, each with the blank line behind it.

    Raises:
        aiohttp.ClientError: the engine broke off, or an event does not end.
    """
    rest = b""
    async for data in reply.content.iter_any():
        *whole, rest = _END.split(rest + data)
        for event in whole:
            yield event.lstrip(b"\r\n") + b"\n\n"
        if len(rest) > _LONGEST:
            raise aiohttp.ClientPayloadError("an event without an end")
    if rest.strip():
        yield rest + b"\n\n"


def is_done(event: bytes) -> bool:
    """Whether an event is the last one of OpenAI's streams."""
    return event.startswith(b"data:") and event[5:].strip() == b"[DONE]"


def data_of(event: bytes) -> bytes:
    """Return the data of an event, which its name may precede; empty if it has none."""
    return b"".join(line[5:] for line in event.splitlines() if line.startswith(b"data:"))


def event_of(body: JsonObject) -> bytes:
    return b"data: " + orjson.dumps(body) + b"\n\n"


def loaded(data: bytes) -> Any:
    """Return what JSON bytes hold; None if they are not JSON."""
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:
        return None
