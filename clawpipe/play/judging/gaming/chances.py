"""Tests behind the signs of gaming: each gives the chance of what was seen, were nothing wrong.

A night makes about ten such tests. `LEVEL` is the chance of an alarm in an honest night; each test has a tenth of it (Bonferroni).
Tests of one out of many phrases divide by the number of phrases as well.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Sequence
from math import comb, erfc, exp, lgamma, log, sqrt

FEWEST = 30  # turns, requests or trajectories, below which no sign is reported
LEVEL = 0.02
TESTS = 10


def significant(chance: float, level: float = LEVEL / TESTS) -> bool:
    return chance <= level


def at_least(count: int, n: int, rate: float) -> float:
    """Return P(X >= count) for X of the binomial distribution with `n` trials at `rate`, strictly between 0 and 1."""
    return min(1.0, sum(_binomial(k, n, rate) for k in range(count, n + 1)))


def at_most(count: int, n: int, rate: float) -> float:
    """Return P(X <= count) for X of the binomial distribution with `n` trials at `rate`, strictly between 0 and 1."""
    return min(1.0, sum(_binomial(k, n, rate) for k in range(count + 1)))


def _binomial(k: int, n: int, rate: float) -> float:
    ways = lgamma(n + 1) - lgamma(k + 1) - lgamma(n - k + 1)
    return exp(ways + k * log(rate) + (n - k) * log(1 - rate))


def more_often(hits: int, of: int, other_hits: int, other: int) -> float:
    """Return the one-sided p-value of Fisher's exact test that the first rate is no higher than the second.

    Source: R. A. Fisher, The Design of Experiments (1935), chapter 2.
    """
    total, both = hits + other_hits, of + other
    most = min(total, of)
    ways = comb(both, total)
    return min(1.0, sum(comb(of, k) * comb(other, total - k) for k in range(hits, most + 1)) / ways)


def larger(first: Sequence[float], second: Sequence[float]) -> tuple[float, float]:
    """Return the share of pairs in which the value of `first` is the larger one (ties are half), and the one-sided p-value.

    Source: H. B. Mann and D. R. Whitney, Annals of Mathematical Statistics 18 (1947) 50-60, in its normal approximation with the
    correction for ties.
    """
    ordered, n, m = sorted(second), len(first), len(second)
    wins = sum((bisect_left(ordered, value) + bisect_right(ordered, value)) / 2 for value in first)
    total = n + m
    ties = sum(count**3 - count for count in Counter([*first, *second]).values())
    variance = n * m / 12 * (total + 1 - ties / (total * (total - 1)))
    if variance <= 0:
        return 0.5, 1.0
    return wins / (n * m), erfc((wins - n * m / 2) / sqrt(2 * variance)) / 2
