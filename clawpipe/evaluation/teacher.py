"""Is a teacher that sees a hint better than the student that does not? Decided before the student learns from it: a teacher that is
hardly better makes the student worse, however small its loss becomes.

Each item that is asked gives one pair: whether the teacher's one rollout behind the hinted prompt succeeds, and how often the
student's own rollouts did.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import NormalDist, fmean, stdev
from typing import Any, NamedTuple

from clawpipe.config.training import Opd
from clawpipe.errors import DataError

CONFIDENCE = 0.95  # one-sided
MIN_ITEMS = 8  # fewer pairs decide nothing: their spread is no estimate of anything


class Pair(NamedTuple):
    """One item: shares of rollouts that succeeded, each from 0 to 1."""

    teacher: float
    student: float


def judge_teacher(pairs: Sequence[Pair], min_gain: float) -> dict[str, Any]:
    """Whether the student may learn from the teacher, and the figures that say so.

    Allowed iff there are at least `MIN_ITEMS` pairs, the mean gain (teacher less student, item by item) is `min_gain` or more,
    and the lower bound of the gain is above 0: mean - z * s / sqrt(n), the one-sided confidence bound of a mean of paired
    differences by the normal approximation, with s their sample standard deviation.

    Returns:
        allowed, n, and where there are pairs teacher_success, student_success, gain and gain_low; also, where the student fails at
        all, teacher_where_student_fails: the teacher's success weighted by how often the student failed on the item.
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
    """Why nothing can be learnt from the teacher, and what to do."""
    n = figures["n"]
    if n < MIN_ITEMS:
        what = f"only {n} of the round's items have a hint and a scored rollout, and {MIN_ITEMS} are needed to judge the teacher"
    else:
        what = (
            f"the hinted teacher is not clearly better than the student: it succeeds on {figures['teacher_success']:.0%} of {n} "
            f"items and the student on {figures['student_success']:.0%}, a gain of {figures['gain']:+.2f} ({CONFIDENCE:.0%} sure "
            f"of {figures['gain_low']:+.2f} or more), where {config.min_gain:g} is asked for and more than 0 for sure"
        )
    return DataError(
        what,
        "train.opd",
        "give better hints, set train.opd.hint to demonstration, name another train.opd.teacher, or set train.method to grpo; "
        "hints of single turns can be tried nowhere: train.opd.probe_items: 0 trusts them",
    )
