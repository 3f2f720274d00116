"""Early signs between two rounds of a night: a slice that fell, and rollouts that became longer or shorter.

A sign changes nothing by itself: it is a sentence that says what was seen and what to change.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import sqrt

from clawpipe.core.config.methods import METHODS, MethodName
from clawpipe.learn.evaluation.rounds import Measured, fallen_slices
from clawpipe.learn.evaluation.sampled import Length

ALPHA = 0.05  # chance that noise alone shows a fall in any slice of a round; a night has few rounds, and a sign costs a glance
DRIFT = 1.5  # ratio of lengths: half as long again is more than another draw of items explains
ERRORS = 3.0  # standard errors beyond which lengths differ: once in 370 rounds by chance, though rollouts of an item are alike


def signs_between(before: Measured, after: Measured, lengths: tuple[Length | None, Length | None], method: MethodName) -> list[str]:
    """Return a sentence for each sign that a round's training did harm, in a fixed order.

    Args:
        before: the policy that the last round sampled with.
        after: that of this round.
        lengths: of both rounds' rollouts; None where they are not known.
        method: by which the round was trained.
    """
    falls = fallen_slices(before, after, ALPHA)
    learned = bool(fallen_slices(after, before, ALPHA)) and not falls
    return [*_falls(falls, after.round, method), *_drifts(*lengths, learned)]


def _falls(falls: Mapping[str, tuple[float, float]], trained: int, method: MethodName) -> Iterator[str]:
    for name, (was, now) in falls.items():
        yield (
            f"Slice {name!r} fell from {was:.3f} to {now:.3f} of its rollouts with the training of round {trained}: "
            f"halve train.learning_rate, or {METHODS[method].stays_near} to stay near the start."
        )


def _drifts(before: Length | None, after: Length | None, learned: bool) -> Iterator[str]:
    """Yield the sign of another length. A policy that `learned` may well need fewer words, as after demonstrations."""
    if not before or not after or not before.mean or not after.mean:
        return
    ratio = after.mean / before.mean
    if learned and ratio < 1:
        return
    error = sqrt(before.variance / before.n + after.variance / after.n)
    if not 1 / DRIFT < ratio < DRIFT and abs(after.mean - before.mean) > ERRORS * error:
        longer = ratio > 1
        fix = "rollouts that are cut fail: raise rollouts.max_new_tokens, or " if longer else ""
        yield (
            f"Rollouts became {'longer' if longer else 'shorter'}: {after.mean:.1f} sampled tokens on average, {before.mean:.1f} "
            f"in the round before; {fix}look whether length is rewarded, and lower train.learning_rate."
        )
