"""A running mean to centre rewards by where there is no group to compare with."""

from __future__ import annotations

from collections.abc import Sequence


def running_mean(values: Sequence[float], decay: float) -> list[float]:
    """For each value the exponential mean of those before it: b_1 = 0, b_(k+1) = decay * b_k + (1 - decay) * v_k.

    A value is no part of its own baseline, which would bias the gradient. 0 is where a neutral reward would put it.
    """
    means, mean = [], 0.0
    for value in values:
        means.append(mean)
        mean = decay * mean + (1 - decay) * value
    return means
