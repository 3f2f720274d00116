"""Decide whether a teacher that sees a hint is better than the student without it. Distillation from a teacher that is not
clearly better makes the student worse, however small its loss becomes, so this comes first.

Each item gives one pair: whether the teacher's rollout with the hinted prompt succeeds, and the share of the student's
rollouts that did.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import NormalDist, fmean, stdev
from typing import Any, NamedTuple

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.core.config.methods import Opd
from clawpipe.errors import DataError

CONFIDENCE = 0.95  # one-sided
MIN_ITEMS = 8  # with fewer pairs the spread cannot be estimated


class Pair(NamedTuple):
    """Success rates on one item, each from 0 to 1."""

    teacher: float
    student: float


def judge_teacher(pairs: Sequence[Pair], min_gain: float) -> JsonObject:
    """Decide whether the student may learn from the teacher, and return the decision with its figures.

    The student may learn if there are at least `MIN_ITEMS` pairs, the mean gain m of teacher over student is at least `min_gain`,
    and the gain's one-sided 95 % confidence bound is above 0: m - z s / sqrt(n), by the normal approximation, where z = 1.645, s is
    the sample standard deviation of the n gains.

    Returns:
        allowed and n; with pairs also teacher_success, student_success, gain (m) and, from two pairs on, gain_low (the bound). If
        the student fails anywhere, also teacher_where_student_fails: sum(t (1 - s)) / sum(1 - s) over items with the teacher's
        success rate t and the student's s.
    """
    if not pairs:
        return {"allowed": False, "n": 0}
    gains = [pair.teacher - pair.student for pair in pairs]
    gain = fmean(gains)
    spread = stdev(gains) / math.sqrt(len(gains)) if len(gains) > 1 else math.inf
    low = gain - NormalDist().inv_cdf(CONFIDENCE) * spread
    figures = {
        "teacher_success": fmean(pair.teacher for pair in pairs),
        "student_success": fmean(pair.student for pair in pairs),
        "gain": gain,
        **({"gain_low": low} if math.isfinite(low) else {}),
        **_where_student_fails(pairs),
    }
    allowed = len(pairs) >= MIN_ITEMS and gain >= min_gain and low > 0
    return {"allowed": allowed, "n": len(pairs), **{name: round(value, 6) for name, value in figures.items()}}


def _where_student_fails(pairs: Sequence[Pair]) -> dict[str, float]:
    failures = sum(1 - pair.student for pair in pairs)
    won = sum(pair.teacher * (1 - pair.student) for pair in pairs)
    return {"teacher_where_student_fails": won / failures} if failures else {}


def refusal(figures: Mapping[str, Any], config: Opd) -> DataError:
    """Return the error for a teacher that is refused, with the reason and the possible fixes."""
    n = figures["n"]
    if n < MIN_ITEMS:
        what = f"only {n} of the round's items have a hint and a scored rollout, and {MIN_ITEMS} are needed to judge the teacher"
    else:
        what = (
            f"the hinted teacher is not clearly better than the student: it succeeds on {figures['teacher_success']:.0%} of {n} "
            f"items and the student on {figures['student_success']:.0%}, a gain of {figures['gain']:+.2f} ({CONFIDENCE:.0%} sure "
            f"of {figures['gain_low']:+.2f} or more), where {config.min_gain:g} is required, and surely more than 0"
        )
    return DataError(
        what,
        "train.opd",
        "give better hints, set train.opd.hint to demonstration, name another train.opd.teacher, or set train.method to grpo; "
        "hints of single turns cannot be probed: train.opd.probe_items: 0 trusts them",
    )
