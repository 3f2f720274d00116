"""Share a number of items among environments by their weights: exactly, and without luck."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from math import lcm


def quotas(total: int, weights: Sequence[float]) -> list[int]:
    """Return whole numbers that sum up to `total`, in proportion to the weights: the largest remainders are rounded up.

    Of equal remainders the first comes first. A weight is the decimal number that is written, so 0.7 of ten is seven.
    """
    exact = [Fraction(repr(weight)) for weight in weights]
    shares = [total * weight / sum(exact) for weight in exact]
    whole = [int(share) for share in shares]
    by_remainder = sorted(range(len(shares)), key=lambda place: whole[place] - shares[place])
    for place in by_remainder[: total - sum(whole)]:
        whole[place] += 1
    return whole


def rounds_of(items: int, rounds: int, weights: Sequence[float]) -> list[list[int]]:
    """Return for each round how many of its `items` each weight gets; all rounds together are the quotas of `items * rounds`.

    Each weight's items are spread evenly over the night, so that a round differs from its share by less than two items.
    """
    total = items * rounds
    shares = quotas(total, weights)
    common = lcm(*filter(None, shares))  # whole numbers in place of fractions: they are compared for each item
    spread = [
        ((2 * number + 1) * (common // quota), place) for place, quota in enumerate(shares) if quota for number in range(quota)
    ]
    order = [place for _, place in sorted(spread)]
    return [[order[start : start + items].count(place) for place in range(len(weights))] for start in range(0, total, items)]
