"""Compare histories: whether a conversation begins with what was recorded before, whatever a client left out of it.

Clients drop thoughts from a history, keep them, or move them into another field; they trim spaces, and make up new ids for calls;
agents write the time into the system prompt. None of that makes another history.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

import msgspec

from clawpipe.core.conversation.messages import ToolCall
from clawpipe.data.wire.arguments import comparable
from clawpipe.data.wire.thoughts import spoken

_SYSTEM = ("system", "developer")
_packed = msgspec.msgpack.Encoder().encode  # a third of the time of JSON


def counts(role: Any) -> bool:
    """Whether messages of a role belong to the history."""
    return role not in _SYSTEM


def history_digest(before: bytes, role: Any, content: Any, calls: Iterable[ToolCall] = ()) -> bytes:
    """Return the digest of a history and one more message; of the history itself if the message does not count.

    Args:
        before: the digest of the messages before; for the first message any bytes.
        content: the text; or parts, as they are, if they are not all text.
    """
    return hashlib.blake2b(before + said_in(role, content, calls), digest_size=16).digest() if counts(role) else before


def said_in(role: Any, content: Any, calls: Iterable[ToolCall] = ()) -> bytes:
    """Return what of a message belongs to its history, as bytes that are equal for equal messages."""
    text = spoken(content) if role == "assistant" and isinstance(content, str) else content
    made = [comparable(call) for call in calls]
    if isinstance(text, str):
        with suppress(UnicodeEncodeError):  # half a surrogate pair
            return _packed((role, text.strip(), made))
    return json.dumps([role, text.strip() if isinstance(text, str) else text or "", made], sort_keys=True).encode()
