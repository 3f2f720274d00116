"""What holds for every part of a line, whatever its format."""

from __future__ import annotations

from typing import Any

from clawpipe.data.importers.formats.capture import Captured
from clawpipe.data.importers.formats.openclaw import JudgeRecord, TurnRecord
from clawpipe.data.importers.formats.table import Part
from clawpipe.data.importers.outcome import unread_outcomes
from clawpipe.data.importers.record import Conversation, Preference, Prompt, check_names, check_storable, check_tokens
from clawpipe.data.importers.strict_json import Reasons

_ROW_NAMES = ("trajectory_id", "item_id")


def check_part(part: Part) -> None:
    """Check that a part can be stored. Raises RefusedError: with all reasons why not."""
    if isinstance(part, Captured):  # what becomes of it is checked
        return
    reasons = Reasons()
    with reasons:
        check_storable(part)
    with reasons:
        check_tokens(part.tokens if isinstance(part, Conversation) else None)
    with reasons:
        check_names(**_names_of(part))
    reasons.raise_all()


def _names_of(part: Conversation | Preference | Prompt | TurnRecord | JudgeRecord) -> dict[str, Any]:
    """Return the names in a part, which have to be fit for a path."""
    if isinstance(part, TurnRecord | JudgeRecord):
        return {"session_id": part.session}
    row = (part.row or {}) if isinstance(part, Conversation) else {}
    return {"session_id": part.session, "user_id": part.user} | {name: row.get(name) for name in _ROW_NAMES}


def columns_like_outcomes(record: Conversation | Preference | Prompt) -> list[str]:
    """Return the columns that look like outcomes; those of a prompt are for its verifier, and do not count."""
    own = isinstance(record, Conversation) and record.row is not None
    return [] if own or isinstance(record, Prompt) else unread_outcomes(record.extra)
