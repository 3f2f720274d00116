"""Outcomes that stand beside a conversation in its row, and columns that sound like one and are not read."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from clawpipe.importers.record import Fields, Judgement

_NUMBERS = ("reward", "score")
_TRUTHS = ("success", "label", "kto_tag")
_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
_SOUNDS = frozenset(
    (
        *("reward", "rewards", "score", "scores", "success", "successful", "label", "labels", "rating", "ratings", "rated"),
        *("passed", "pass", "correct", "correctness", "accuracy", "outcome", "outcomes", "resolved", "solved", "grade", "grades"),
        *("graded", "verdict", "feedback", "quality", "thumbs", "preference", "preferred"),
    )
)


def take_outcome(fields: Fields) -> tuple[Judgement, ...]:
    """The judgement of a row: its `reward` or `score`, else 1 or 0 by its `success`, `label` or `kto_tag`; none where it has none.

    What is no number, and no truth value nor 0 or 1, is left where it is.
    """
    numbers = {name: value for name in _NUMBERS if type(value := fields.peek(name)) in (int, float)}
    truths = {name: bool(value) for name in _TRUTHS if _is_truth(value := fields.peek(name))}
    for name in (*numbers, *truths):
        fields.take(name, int, float, bool)
    if not numbers and not truths:
        return ()
    success = next(iter(truths.values()), None)
    name, value = next(iter((numbers or truths).items()))
    evidence = {other: said for other, said in (numbers | truths).items() if other != name}
    return (Judgement(float(value), "custom", success, reason=f"{name} of the row", evidence=evidence),)


def unread_outcomes(columns: Iterable[str]) -> list[str]:
    """Those columns whose names have a word for an outcome in them."""
    return [name for name in columns if not _SOUNDS.isdisjoint(word.lower() for word in _WORD.findall(name))]


def _is_truth(value: Any) -> bool:
    return isinstance(value, bool) or (isinstance(value, int | float) and value in (0, 1))
