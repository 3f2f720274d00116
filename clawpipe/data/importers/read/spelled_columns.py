"""Columns of a row that spell messages as a JSON text, as databases, tables and storages of text alone keep them."""

from __future__ import annotations

from typing import Any

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.data.importers.message import are_messages
from clawpipe.data.importers.values import unspelled

_ASKING = ("messages", "conversations", "conversation", "prompt", "input", "chosen")
_BESIDE = ("completion", "output", "response", "rejected")


def unspelled_columns(record: JsonObject) -> JsonObject:
    """Return a row with the messages that its columns spell; any other row as it is.

    An answer may be JSON because that was asked for: it is only taken for messages where the question is messages, too.
    """
    found = {name: value for name in _ASKING if (value := _messages_in(record.get(name))) is not None}
    if not found:
        return record
    beside = {name: _said_in(record.get(name)) for name in _BESIDE}
    return record | found | {name: value for name, value in beside.items() if value is not None}


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
