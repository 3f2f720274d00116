"""Parse the feedback on answers that clients send to `/v1/feedback`."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.data.capture.records import Feedback
from clawpipe.serve.serving.errors import ApiError

_THUMBS = {"up": 1.0, "down": -1.0}
_LONGEST_TEXT = 1 << 20


def feedback_of(body: JsonObject, key: str, session_id: Callable[[str], str] = str) -> Feedback:
    """Return the feedback in a request; `session_id` makes a session's id one that can be stored.

    Raises:
        ApiError: 400, it names no turn, says nothing, or has a field that is wrong.
    """
    thumb, rating, turn = body.get("thumb"), body.get("rating"), body.get("turn")
    texts = {name: body.get(name) for name in ("response_id", "session_id", "correction", "comment")}
    known = {"thumb", "rating", "turn", *texts}
    _check("body", not body.keys() - known, f"only {', '.join(sorted(known))}")
    for name, value in texts.items():
        _check(name, value is None or (isinstance(value, str) and 0 < len(value) <= _LONGEST_TEXT), "a text")
    _check("turn", turn is None or (type(turn) is int and 1 <= turn < 2**31), "a number from 1 on")
    _check("thumb", thumb is None or thumb in ("up", "down"), "up or down")
    _check("rating", rating is None or (type(rating) in (int, float) and -1 <= rating <= 1), "a number from -1 to 1")
    _check("thumb", thumb is None or rating is None, "given without a rating")
    response, session = texts["response_id"], texts["session_id"]
    _check("response_id", bool(response) != bool(session and turn), "given, or session_id and turn")
    value = _THUMBS.get(thumb, rating) if isinstance(thumb, str) else rating
    _check("thumb", value is not None or bool(texts["correction"]), "given, or a rating or a correction")
    return Feedback(
        id=f"feedback-{uuid.uuid4().hex}",
        time=time.time(),
        key=key,
        response_id=response,
        session=session_id(session) if session else None,
        turn=turn,
        value=None if value is None else float(value),
        correction=texts["correction"],
        comment=texts["comment"],
    )


def _check(field: str, holds: bool, what: str) -> None:
    if not holds:
        raise ApiError(400, f"{field}: must be {what}", field, "invalid_value")
