"""Statistics of paired successes: intervals, an exact paired test, a margin test and sample size.

Two models answer the same items. An item that one solves and the other does not is *discordant*: a win for the candidate
or a loss for it. Concordant items say nothing about which model is better, so the tests look at wins and losses only.

Items of one identity (the same object in two questions) may win and lose together, so the unit of every test is the
identity, not the item. With one item per identity, each test is the usual one.
"""

from __future__ import annotations

import itertools
import math
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from statistics import NormalDist
from typing import NamedTuple

_NORMAL = NormalDist()


class Cluster(NamedTuple):
    """Counts of the items of one identity."""

    n: int
    wins: int
    losses: int


def design_effect(sizes: Sequence[int]) -> float:
    """Return by how much the variance of a mean grows if items of one identity always agree: `sum(n^2) / sum(n)`, the worst case.

    Args:
        sizes: number of items of each identity, at least one in total.

    Source: L. Kish, Survey Sampling (1965), with an intraclass correlation of 1.
    """
    return sum(size * size for size in sizes) / sum(sizes)


def wilson(successes: float, n: float, confidence: float) -> tuple[float, float]:
    """Return Wilson's score interval of a success rate.

    Args:
        successes: 0 to `n`.
        n: above 0. Where items share identities, divide both counts by `design_effect`; n is then the effective sample size.
        confidence: two-sided, strictly between 0 and 1.

    Source: E. B. Wilson, JASA 22 (1927) 209-212.
    """
    z2 = _NORMAL.inv_cdf(0.5 + confidence / 2) ** 2
    rate = successes / n
    middle = rate + z2 / (2 * n)
    half = math.sqrt(z2 * (rate * (1 - rate) + z2 / (4 * n)) / n)
    low, high = (middle - half) / (1 + z2 / n), (middle + half) / (1 + z2 / n)
    return (0.0 if successes == 0 else low), (1.0 if successes == n else high)  # exact ends, without rounding errors


def sign_flip(gains: Iterable[int]) -> float:
    """Return the one-sided exact p-value of the gains, if each identity's gain were equally likely to have either sign.

    It is the share of all sign choices whose total is at least the observed one, counted without sampling, so it is valid for
    any correlation within an identity. If every gain is 1 or -1, it is McNemar's exact test, `P(Bin(n, 1/2) >= wins)`. Negate
    the gains to test for worse. Without a gain other than 0 the result is 1.

    Args:
        gains: wins minus losses for each identity.

    Source: R. A. Fisher, The Design of Experiments (1935), section 21; Q. McNemar, Psychometrika 12 (1947) 153-157.
    """
    gains = [gain for gain in gains if gain]
    totals = {0: 1}  # total -> number of sign choices that give it
    for size, count in Counter(map(abs, gains)).items():
        totals = _sums(totals, {size * (2 * kept - count): ways for kept, ways in enumerate(_choices(count))})
    observed = sum(gains)
    return sum(ways for total, ways in totals.items() if total >= observed) / 2 ** len(gains)


def betting_evidence(wins: int, losses: int) -> float:
    """Return how many times as much a gambler has who bet on every win, with even odds: the integral over l from 0 to 1 of
    (1 + l)^wins (1 - l)^losses.

    While a win is no likelier than a loss, given all that came before, nobody's money is expected to grow. So it ever reaches
    1/alpha with a probability of at most alpha, however often and whenever one looks, and whatever the earlier results change.
    What no float can hold, as after 1,100 wins without a loss, is the largest one.

    Source: J. Ville, Etude critique de la notion de collectif (1939); G. Shafer, JRSS A 184 (2021) 407-431.
    """
    n = wins + losses
    exact = Fraction(sum(itertools.islice(_choices(n + 1), wins + 1)), (n + 1) * math.comb(n, wins))  # a sum of binomials
    return float(min(exact, Fraction(sys.float_info.max)))


def nights_needed(a_night: int, gain: float, discordant: float, alpha: float, target: float, most: int) -> int | None:
    """Return after how many nights `betting_evidence` has reached 1/alpha with probability `target`; None: not within `most`.

    Args:
        a_night: fresh identities a night.
        gain: true difference of the success rates, above 0.
        discordant: share of identities on which the models differ, at least `gain`.
    """
    share = (1 + gain / discordant) / 2  # of wins among those on which they differ
    for nights in range(1, most + 1):
        n = round(nights * a_night * discordant)
        if sum(_likely(n, wins, share) for wins in _enough(n, alpha)) >= target:
            return nights
    return None


def _likely(n: int, wins: int, share: float) -> float:
    """Return the probability of this many wins among n. By logarithms: of a thousand and more no float holds the number of ways."""
    if share >= 1:
        return float(wins == n)
    return math.exp(math.log(math.comb(n, wins)) + wins * math.log(share) + (n - wins) * math.log1p(-share))


def _enough(n: int, alpha: float) -> Iterator[int]:
    """Yield the numbers of wins among n that are evidence enough."""
    wins = range(n, n // 2, -1)
    return itertools.takewhile(lambda won: betting_evidence(won, n - won) >= 1 / alpha, wins)


def _choices(n: int) -> Iterator[int]:
    """Yield C(n, k) for k from 0 to n."""
    ways = 1
    for k in range(n + 1):
        yield ways
        ways = ways * (n - k) // (k + 1)


def _sums(left: Mapping[int, int], right: Mapping[int, int]) -> dict[int, int]:
    """Return the number of ways to get each sum of a value of `left` and a value of `right`."""
    found: Counter[int] = Counter()
    for a, ways_a in left.items():
        for b, ways_b in right.items():
            found[a + b] += ways_a * ways_b
    return found


def beyond_margin(clusters: Sequence[Cluster], margin: float) -> float:
    """Return the one-sided p-value of "the success rate fell by no more than `margin`"; a small value means it fell further.

    It is the larger of two p-values, since both must be significant: Tango's score test of `loss rate - win rate <= margin`,
    with counts divided by `design_effect`, and the exact test of "no worse at all", which keeps a handful of items from being
    significant (the score test is asymptotic).

    Args:
        clusters: counts of each identity; at least one item in total.

    Source: T. Tango, Statistics in Medicine 17 (1998) 891-908.
    """
    n, wins, losses = (sum(counts) for counts in zip(*clusters, strict=True))
    exact = sign_flip(cluster.losses - cluster.wins for cluster in clusters)
    a = 2 * n
    b = -losses - wins + (2 * n - losses + wins) * margin
    c = -wins * margin * (1 - margin)
    q = (math.sqrt(b * b - 4 * a * c) - b) / (2 * a)  # maximum likelihood estimate of the win rate under the hypothesis
    variance = n * (2 * q + margin * (1 - margin)) * design_effect([cluster.n for cluster in clusters])
    excess = losses - wins - n * margin
    if variance <= 0:  # neither a discordant item nor a margin
        return exact
    return max(exact, _NORMAL.cdf(-excess / math.sqrt(variance)))


def items_needed(gain: float, discordant: float, alpha: float, target: float) -> int:
    """Return the number of paired items with which the test detects `gain` with probability `target`, by the normal approximation:
    n = ceil(((z_alpha sqrt(d) + z_target sqrt(d - g^2)) / g)^2), with g the gain, d the discordant share, z standard normal
    quantiles.

    Args:
        gain: true difference of the success rates; not 0.
        discordant: share of items on which the two models differ; at least `abs(gain)`.
        alpha: one-sided level of the test, strictly between 0 and 1.
        target: power, strictly between 0 and 1.

    Raises:
        ZeroDivisionError: `gain` is 0.
        StatisticsError: `alpha` or `target` is not strictly between 0 and 1.

    Source: R. J. Connor, Biometrics 43 (1987) 207-211.
    """
    z_alpha, z_target = _NORMAL.inv_cdf(1 - alpha), _NORMAL.inv_cdf(target)
    root = z_alpha * math.sqrt(discordant) + z_target * math.sqrt(max(discordant - gain**2, 0.0))
    return math.ceil((root / gain) ** 2)
