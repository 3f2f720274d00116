"""Columns of a row that spell messages: as a JSON text, as databases keep them, or `text` that a chat template wrote."""

from __future__ import annotations

from typing import Any

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.data.importers.formats.sharegpt import dialogue_in
from clawpipe.data.importers.message import are_messages
from clawpipe.data.importers.values import unspelled

_ASKING = ("messages", "conversations", "conversation", "prompt", "input", "chosen")
_BESIDE = ("completion", "output", "response", "rejected")


def unspelled_columns(record: JsonObject) -> JsonObject:
    """Return a row with the messages that its columns spell; any other row as it is.

    An answer may be JSON because that was asked for: it is only taken for messages where the question is messages, too.
    """
    found = {name: value for name in _ASKING if (value := _messages_in(record.get(name))) is not None} or _written_in(record)
    if not found:
        return record
    beside = {name: _said_in(record.get(name)) for name in _BESIDE}
    return record | found | {name: value for name, value in beside.items() if value is not None}


def _written_in(record: JsonObject) -> JsonObject:
    """Return the turns in a row's `text`, in place of it; nothing for a row that may hold them elsewhere."""
    text = record.get("text")
    said = dialogue_in(text) if isinstance(text, str) and not any(name in record for name in _ASKING) else []
    return {"conversations": said, "text": None} if said else {}


def _messages_in(value: Any) -> Any:
    """Return the list of messages, or the request with one, that a text spells; None for anything else."""
    found = unspelled(value) if isinstance(value, str) else None
    listed = found.get("messages") if isinstance(found, dict) else found
    return found if are_messages(listed) else None


def _said_in(value: Any) -> Any:
    """Return the messages, the one message or the response that a text spells; None for anything else."""
    found = unspelled(value) if isinstance(value, str) else None
    if isinstance(found, dict) and (are_messages([found]) or isinstance(found.get("choices"), list)):
        return found
    return _messages_in(value)
