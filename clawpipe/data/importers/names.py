"""The session and the user that a record names, under the fields that programs have for them."""

from __future__ import annotations

from collections.abc import Sequence

from clawpipe.core.basics.json_types import JsonObject, Options
from clawpipe.data.importers.fields import Fields
from clawpipe.data.importers.strict_json import RefusedError
from clawpipe.data.importers.values import name_of

SESSIONS, USERS = ("session_id", "conversation_id"), ("user", "user_id")
_THREADS = (*SESSIONS, "thread_id", "chat_id")  # of a message that stands alone, as a row of a table
_ASKING = ("user", "human")


def take_names(fields: Fields) -> Options:
    """Take session and user if the row names them; values that are not names stay."""
    return {name: found for name, columns in (("session", SESSIONS), ("user", USERS)) if (found := _take(fields, columns))}


def session_of_message(record: JsonObject) -> str | None:
    """Return the session that a message names beside what it says."""
    return name_of(record, *_THREADS)


def user_of_messages(records: Sequence[JsonObject]) -> str | None:
    """Return the user that the messages of one session name.

    Raises:
        RefusedError: they name several users, none of whom could be forgotten alone, or only some of them name a session.
    """
    if len({session_of_message(record) for record in records}) > 1:
        raise RefusedError("messages of which only some name their session")
    asked = [record for record in records if record.get("role", record.get("type")) in _ASKING]
    users = {name for record in asked if (name := name_of(record, *USERS))}
    if len(users) > 1:
        raise RefusedError("messages of several users in one conversation")
    return next(iter(users), None)


def without_names(record: JsonObject) -> JsonObject:
    """Return a message without the fields that name its session and its user."""
    named = [next((name for name in names if name_of(record, name)), None) for names in (_THREADS, USERS)]
    return {name: value for name, value in record.items() if name not in named}


def _take(fields: Fields, columns: Sequence[str]) -> str | None:
    found = next((name for name in columns if name_of(fields.rest, name)), None)
    return name_of({found: fields.take(found, str, int, float)}, found) if found else None
