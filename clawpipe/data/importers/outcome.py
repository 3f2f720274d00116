"""Read the outcome and the user's thumb beside a row's conversation, and list columns that look like outcomes but are not read."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Set
from typing import Any

from clawpipe.data.importers.fields import Fields
from clawpipe.data.importers.record import Judgement
from clawpipe.data.importers.strict_json import RefusedError

_NUMBERS = ("reward", "score")
_TRUTHS = ("success", "label", "kto_tag")
_THUMBS = ("thumb", "thumbs", "feedback", "user_feedback")
_OPINIONS = {"up": True, "thumbs_up": True, "thumbsup": True, "👍": True, "positive": True, "like": True, "good": True} | {
    "down": False, "thumbs_down": False, "thumbsdown": False, "👎": False, "negative": False, "dislike": False, "bad": False
}  # fmt: skip
_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
_SOUNDS = frozenset(
    (
        *("reward", "rewards", "score", "scores", "success", "successful", "label", "labels", "rating", "ratings", "rated"),
        *("passed", "pass", "correct", "correctness", "accuracy", "outcome", "outcomes", "resolved", "solved", "grade", "grades"),
        *("graded", "verdict", "feedback", "assessments", "quality", "thumb", "thumbs", "preference", "preferred"),
    )
)


def take_outcome(fields: Fields) -> tuple[Judgement, ...]:
    """Take a row's judgements: its user's thumb, and `reward` or `score`, else 1 or 0 from `success`, `label` or `kto_tag`.

    A value of another kind stays where it is.

    Raises:
        RefusedError: NaN, or an infinite number, which only tables and functions of users can hold.
    """
    return (*_thumb(fields), *_outcome(fields))


def _thumb(fields: Fields) -> tuple[Judgement, ...]:
    """Take a thumb, up or down in one of its spellings; also 1 or -1, but not 0, which stands for down here and for none there."""
    for name in _THUMBS:
        up = _meaning(fields.peek(name))
        if up is not None:
            fields.take(name, str, bool, int, float)
            return (Judgement(float(up), "user", up, reason=f"{name} of the row"),)
    return ()


def _meaning(value: Any) -> bool | None:
    if isinstance(value, str):
        return _OPINIONS.get(value.strip().lower().replace(" ", "_").replace("-", "_"))
    if isinstance(value, bool):
        return value
    return {1.0: True, -1.0: False}.get(value) if isinstance(value, int | float) else None


def _outcome(fields: Fields) -> tuple[Judgement, ...]:
    numbers = {name: value for name in _NUMBERS if type(value := fields.peek(name)) in (int, float)}
    truths = {name: bool(value) for name in _TRUTHS if _is_truth(value := fields.peek(name))}
    if wrong := next((name for name, value in numbers.items() if not math.isfinite(value)), None):
        raise RefusedError(f"{wrong}: not a finite number")
    for name in (*numbers, *truths):
        fields.take(name, int, float, bool)
    if not numbers and not truths:
        return ()
    success = next(iter(truths.values()), None)
    name, value = next(iter((numbers or truths).items()))
    evidence = {other: given for other, given in (numbers | truths).items() if other != name}
    return (Judgement(float(value), "custom", success, reason=f"{name} of the row", evidence=evidence),)


def unread_outcomes(columns: Mapping[str, Any]) -> list[str]:
    """Return the columns with a word for an outcome in their name; of one that lists scores by name, the path to each of them."""
    return [path for name in sounding(columns, _SOUNDS) for path in _named_in(columns[name], name) or [name]]


def _named_in(value: Any, column: str) -> list[str]:
    """Return the paths to the scores that a column lists by name; MLflow's are values of `feedback`."""
    listed = [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []
    paths = [(one, "value" if "value" in one else "feedback.value") for one in listed if "value" in one or "feedback" in one]
    return [f"{column}.{name}.{path}" for one, path in paths if (name := one.get("name") or one.get("assessment_name"))]


def sounding(columns: Iterable[str], words: Set[str]) -> list[str]:
    """Return the columns with one of these words in their name, in snake_case or camelCase."""
    return [name for name in columns if any(word.lower() in words for word in _WORD.findall(name))]


def _is_truth(value: Any) -> bool:
    return isinstance(value, bool) or (isinstance(value, int | float) and value in (0, 1))
