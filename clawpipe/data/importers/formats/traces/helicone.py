"""Read logs of Helicone, as its export and its query API give them.

    {"request_body": {"messages", "model"}, "response_body": {"choices"}, "request_user_id", "request_properties"}

The property `Helicone-Session-Id` is the session. A feedback of the user is a thumb.
"""

from __future__ import annotations

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.data.importers.formats.traces.sides import read_sides
from clawpipe.data.importers.record import Conversation
from clawpipe.data.importers.strict_json import RefusedError
from clawpipe.data.importers.values import name_of, object_of, text_of, without

_ANSWERED = range(200, 300)  # statuses of HTTP


def is_helicone(record: JsonObject) -> bool:
    return "request_body" in record and "response_body" in record


def read_helicone(record: JsonObject) -> list[Conversation]:
    """Read a logged call.

    Raises:
        RefusedError: it failed, or holds no messages.
    """
    status = record.get("response_status")
    if type(status) is int and status not in _ANSWERED:
        raise RefusedError("a call in Helicone's log that failed")
    request = object_of(record["request_body"])
    named = object_of(record.get("request_properties")) | object_of(record.get("properties"))
    known = {
        "session_id": name_of(named, "Helicone-Session-Id", "helicone-session-id", "session_id"),
        "user": name_of(record, "request_user_id", "user_id"),
        "model": text_of(record.get("response_model")) or text_of(record.get("request_model")) or text_of(record.get("model")),
    }
    feedback = object_of(record.get("feedback")).get("rating", record.get("feedback_rating"))
    rest = without(record, "request_body", "response_body")
    return read_sides("a log of Helicone", request, record["response_body"], known | {"thumb": _thumb(feedback)}, rest)


def _thumb(feedback: object) -> str | None:
    return {True: "up", False: "down"}[feedback] if isinstance(feedback, bool) else None
