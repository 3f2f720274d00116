"""Statistics of paired successes: intervals, the exact paired test, a margin test, power and sample size.

Two models answer the same items. An item that one solves and the other does not is *discordant*: a win for the candidate
or a loss. Concordant items say nothing about which model is better, so the tests look at wins and losses only.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from statistics import NormalDist

_NORMAL = NormalDist()


def wilson(successes: int, n: int, confidence: float) -> tuple[float, float]:
    """Wilson's score interval of a success rate.

    Args:
        successes: 0 to `n`.
        n: at least 1.
        confidence: two-sided, strictly between 0 and 1.

    Source: E. B. Wilson, JASA 22 (1927) 209-212.
    """
    z2 = _NORMAL.inv_cdf(0.5 + confidence / 2) ** 2
    rate = successes / n
    middle = rate + z2 / (2 * n)
    half = math.sqrt(z2 * (rate * (1 - rate) + z2 / (4 * n)) / n)
    low, high = (middle - half) / (1 + z2 / n), (middle + half) / (1 + z2 / n)
    return (0.0 if successes == 0 else low), (1.0 if successes == n else high)  # exact ends, without rounding residue


def mcnemar(wins: int, losses: int) -> float:
    """One-sided exact p-value that wins outweigh losses by chance: `P(Bin(wins + losses, 1/2) >= wins)`.

    Swap the arguments to test for worse. Without discordant items it is 1.

    Source: Q. McNemar, Psychometrika 12 (1947) 153-157, in its exact binomial form.
    """
    n = wins + losses
    term = total = 1  # C(n, k) for k = n down to wins
    for k in range(n, wins, -1):
        term = term * k // (n - k + 1)
        total += term
    return total / 2**n


def beyond_margin(wins: int, losses: int, n: int, margin: float) -> float:
    """One-sided p-value that the success rate fell by no more than `margin` over `n` pairs; small means: it fell further.

    The larger of two p-values, since both must be clear: Tango's score test of `loss rate - win rate <= margin`, and the
    exact paired test of "no worse at all", which keeps a handful of items from counting as clear (the score test is
    asymptotic).

    Source: T. Tango, Statistics in Medicine 17 (1998) 891-908.
    """
    exact = mcnemar(losses, wins)
    a = 2 * n
    b = -losses - wins + (2 * n - losses + wins) * margin
    c = -wins * margin * (1 - margin)
    q = (math.sqrt(b * b - 4 * a * c) - b) / (2 * a)  # the win rate's maximum likelihood estimate under the hypothesis
    variance = n * (2 * q + margin * (1 - margin))
    excess = losses - wins - n * margin
    if variance <= 0:  # no discordant item, no margin
        return exact
    return max(exact, _NORMAL.cdf(-excess / math.sqrt(variance)))


def power(n_items: int, gain: float, discordant: float, alpha: float) -> float:
    """Probability that `mcnemar(wins, losses) < alpha` on `n_items` pairs, exactly.

    Args:
        n_items: paired items.
        gain: true difference of the success rates, candidate minus incumbent.
        discordant: share of items on which the two differ; at least `abs(gain)`.
        alpha: one-sided level.
    """
    win_share = (discordant + gain) / (2 * discordant)
    return sum(weight * _tail(m, _critical_wins(m, alpha), win_share) for m, weight in _binomial(n_items, discordant))


def items_needed(gain: float, discordant: float, alpha: float, target: float) -> int:
    """Paired items that make the paired test see `gain` with probability `target`, by the normal approximation.

    Source: R. J. Connor, Biometrics 43 (1987) 207-211.
    """
    z_alpha, z_target = _NORMAL.inv_cdf(1 - alpha), _NORMAL.inv_cdf(target)
    root = z_alpha * math.sqrt(discordant) + z_target * math.sqrt(max(discordant - gain**2, 0.0))
    return math.ceil((root / gain) ** 2)


def _critical_wins(n: int, alpha: float) -> int:
    """Fewest wins among `n` discordant items that are significant; `n + 1` if none are."""
    term = total = 1
    wins = n
    while total / 2**n < alpha:
        term = term * wins // (n - wins + 1)
        total += term
        wins -= 1
    return wins + 1


def _tail(n: int, start: int, share: float) -> float:
    """`P(Bin(n, share) >= start)`."""
    return sum(weight for k, weight in _binomial(n, share) if k >= start)


def _binomial(n: int, share: float) -> Iterator[tuple[int, float]]:
    """Values of `Bin(n, share)` with their probabilities, in logarithms so that large `n` neither over- nor underflows."""
    if share in (0.0, 1.0):
        yield round(n * share), 1.0
        return
    for k in range(n + 1):
        log_ways = math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)
        weight = math.exp(log_ways + k * math.log(share) + (n - k) * math.log1p(-share))
        if weight > 1e-15:
            yield k, weight
