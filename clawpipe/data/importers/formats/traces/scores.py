"""The scores of a trace: which of several judge its conversation.

{"name", "value", "dataType" | "data_type", "stringValue" | "string_value"}
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from clawpipe.core.basics.json_types import JsonObject

_USERS, _OVERALL = {"user", "feedback", "thumb", "thumbs"}, {"overall", "reward", "success"}  # words in names of scores


def counted_scores(scores: Sequence[JsonObject]) -> JsonObject:
    """Return the scores that count, as a row says them: the only one that is named as a user's, and as the whole; else the only one
    with a number. Nothing where nobody knows which one counts."""
    users, overall = (_only([one for one in scores if _words(one) & words]) for words in (_USERS, _OVERALL))
    found = (_opinion(users) if users else {}) | (_number(overall) if overall else {})
    numbers = [number for one in scores if (number := _number(one))]
    return found or (numbers[0] if len(numbers) == 1 else {})


def _words(score: JsonObject) -> set[str]:
    return set(re.findall("[a-z]+", str(score.get("name")).lower()))


def _only(scores: Sequence[JsonObject]) -> JsonObject | None:
    return scores[0] if len(scores) == 1 else None


def _opinion(score: JsonObject) -> JsonObject:
    """Return what a user said: a thumb where it is a truth value, or a word; else a number."""
    value = score.get("value")
    if isinstance(value, bool) or (score.get("dataType", score.get("data_type")) == "BOOLEAN" and value in (0, 1)):
        return {"thumb": bool(value)}
    word = next((one for one in (value, score.get("stringValue"), score.get("string_value")) if isinstance(one, str) and one), None)
    return {"thumb": word} if word else {"thumb": value} if value in (1, -1) else _number(score)


def _number(score: JsonObject) -> JsonObject:
    value = score.get("value")
    return {"score": float(value)} if isinstance(value, int | float) else {}
