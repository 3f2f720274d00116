import math
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar
from scipy.stats import binom, binomtest, multinomial, norm, permutation_test

from clawpipe.core.config.night import EnvironmentConfig, Gate
from clawpipe.learn.evaluation.verdict.statistics import Cluster, beyond_margin, design_effect, items_needed, sign_flip, wilson

counts = st.integers(0, 60)


def single(wins, losses, n):
    """Return clusters of single items."""
    return [Cluster(1, 1, 0)] * wins + [Cluster(1, 0, 1)] * losses + [Cluster(1, 0, 0)] * (n - wins - losses)


@given(st.integers(1, 400), st.floats(0, 1), st.sampled_from([0.8, 0.9, 0.95, 0.99]))
def test_wilson_equals_scipy(n, share, confidence):
    k = round(share * n)
    oracle = binomtest(k, n).proportion_ci(confidence, method="wilson")
    assert wilson(k, n, confidence) == pytest.approx((oracle.low, oracle.high), abs=1e-12)


def test_design_effect_by_hand():
    assert design_effect([1, 1, 1]) == 1
    assert design_effect([2, 2]) == 2  # four items that are two observations
    assert design_effect([3, 1]) == 10 / 4


@given(counts, counts)
def test_one_item_an_identity_is_scipys_binomial_test(wins, losses):
    oracle = binomtest(wins, wins + losses, alternative="greater").pvalue if wins + losses else 1.0
    assert sign_flip([1] * wins + [0] * 7 + [-1] * losses) == pytest.approx(oracle, rel=1e-9)


@given(counts, counts)
def test_both_tails_overlap_in_the_observed_count_only(wins, losses):
    observed = binom.pmf(wins, wins + losses, 0.5)
    gains = [1] * wins + [-1] * losses
    assert sign_flip(gains) + sign_flip([-gain for gain in gains]) == pytest.approx(1 + observed)


def test_sign_flip_by_hand():
    assert sign_flip([]) == sign_flip([0, 0]) == 1
    assert sign_flip([1, 1, 1]) == 1 / 8
    assert sign_flip([1, 1, 1, -1]) == 5 / 16  # C(4,3) + C(4,4) of 16
    assert sign_flip([-1] * 4) == 1
    assert sign_flip([3]) == 1 / 2  # three items of one identity are one observation, not p = 1/8
    assert sign_flip([2, -1]) == 2 / 4  # +2-1 and +2+1 of four


@given(st.lists(st.integers(-4, 4), max_size=9))
def test_sign_flip_equals_the_enumeration_of_all_signs(gains):
    totals = [sum(sign * gain for sign, gain in zip(signs, gains, strict=True)) for signs in product((-1, 1), repeat=len(gains))]
    assert sign_flip(gains) == sum(total >= sum(gains) for total in totals) / len(totals)


def test_sign_flip_equals_scipys_permutation_test():
    gains = np.array([3, 1, 1, -2, 2, -1, 4, 1, -1, 2])
    oracle = permutation_test((gains, np.zeros(10)), lambda a, b, axis: (a - b).sum(axis), permutation_type="samples",
                              alternative="greater", n_resamples=np.inf)  # fmt: skip
    assert sign_flip(gains.tolist()) == pytest.approx(oracle.pvalue, rel=1e-12)


@given(st.lists(st.integers(-5, 5), max_size=60), st.randoms())
def test_sign_flip_depends_on_no_order(gains, shuffler):
    other = list(gains)
    shuffler.shuffle(other)
    assert sign_flip(other) == sign_flip(gains)


def test_sign_flip_handles_thousands_of_items():
    assert sign_flip([1] * 3000 + [-1] * 2800) == pytest.approx(binomtest(3000, 5800, alternative="greater").pvalue, rel=1e-9)


@pytest.mark.parametrize("correlation", [0.0, 0.5, 0.8, 1.0])
def test_false_promotion_by_correlated_items(correlation):
    """160 items of 83 identities and equal models: a test that counts items is wrong in 7 to 15 % of cases."""
    sizes = [2] * 77 + [1] * 6
    rng = np.random.default_rng(11)
    alarms = 0
    for _ in range(2000):
        shared, own = rng.random(len(sizes)), [rng.random(size) for size in sizes]
        gains = []
        for together, apart, follow in zip(shared, own, rng.random(len(sizes)) < correlation, strict=True):
            draws = [together] * len(apart) if follow else apart
            gains.append(sum(1 if draw < 0.15 else -1 if draw < 0.3 else 0 for draw in draws))
        alarms += sign_flip(gains) < 0.05
    assert alarms / 2000 <= 0.05 + 2.5 * math.sqrt(0.05 * 0.95 / 2000)


def power(n_items, gain, discordant, alpha):
    """Return the probability that the sign test of `n_items` pairs, all of separate identities, has a p-value below `alpha`."""
    m = np.arange(n_items + 1)  # discordant items
    fewest = binom.isf(alpha, m, 0.5) + 1  # isf: smallest k with P(X > k) <= alpha
    fewest += binom.sf(fewest - 1, m, 0.5) >= alpha  # p must be below alpha, not equal to it
    return binom.pmf(m, n_items, discordant) @ binom.sf(fewest - 1, m, (discordant + gain) / (2 * discordant))


# An independent calculation at 20 % discordant items, rounded: alpha, gain, power in per cent at 200, 400, 800, 1600 items.
POWER = [
    (0.05, 0.05, (42, 69, 93, 99.8)),
    (0.05, 0.03, (20, 34, 57, 84)),
    (0.05, 0.0, (3.7, 3.9, 4.2, 4.4)),
    (0.025, 0.05, (30, 57, 88, 99.4)),
    (0.025, 0.03, (12, 23, 45, 75)),
    (0.025, 0.0, (1.7, 1.9, 2.1, 2.2)),
]


@pytest.mark.parametrize(("alpha", "gain", "percents"), POWER)
def test_power_table(alpha, gain, percents):
    for n_items, percent in zip((200, 400, 800, 1600), percents, strict=True):
        assert 100 * power(n_items, gain, 0.2, alpha) == pytest.approx(percent, abs=0.6)


@pytest.mark.parametrize(("gain", "discordant"), [(0.2, 0.3), (0.25, 0.5), (0.3, 0.6)])
def test_default_heldout_set_sees_a_large_gain_nine_times_in_ten(gain, discordant):
    assert power(EnvironmentConfig().heldout_items, gain, discordant, Gate().level) >= 0.9


def test_ten_points_on_400_items_show_within_two_nights():
    assert 1 - (1 - power(400, 0.1, 0.3, Gate().level)) ** 2 >= 0.9


def test_thirty_nights_promote_by_luck_at_most_one_time_in_20():
    for n_items in (50, 160, 400, 800):
        assert 1 - (1 - power(n_items, 0.0, 0.3, Gate().level)) ** 30 <= 0.05


@pytest.mark.parametrize(("gain", "discordant"), [(0.05, 0.2), (0.2, 0.4), (0.1, 0.6)])
def test_items_needed_reach_the_power_they_promise(gain, discordant):
    needed = items_needed(gain, discordant, 0.05, 0.9)
    assert power(needed, gain, discordant, 0.05) == pytest.approx(0.9, abs=0.03)


def test_margin_0_is_the_exact_test_or_more_cautious():
    for wins in range(12):
        for losses in range(12):
            assert beyond_margin(single(wins, losses, 24), 0.0) >= sign_flip([1] * losses + [-1] * wins)


@pytest.mark.parametrize(
    ("wins", "losses", "n", "margin"), [(2, 14, 40, 0.1), (0, 10, 40, 0.1), (9, 30, 80, 0.05), (5, 40, 60, 0.3)]
)
def test_margin_test_equals_a_numerical_score_test(wins, losses, n, margin):
    def unlikely(win):  # minus the log-likelihood where the loss rate exceeds the win rate by exactly the margin
        return -(wins * math.log(win) + losses * math.log(win + margin) + (n - wins - losses) * math.log(1 - 2 * win - margin))

    win = minimize_scalar(unlikely, bounds=(1e-12, (1 - margin) / 2 - 1e-12), method="bounded", options={"xatol": 1e-12}).x
    z = (losses - wins - n * margin) / math.sqrt(n * (2 * win + margin - margin**2))
    assert beyond_margin(single(wins, losses, n), margin) == pytest.approx(
        max(norm.sf(z), sign_flip([1] * losses + [-1] * wins)), rel=1e-3
    )


def test_margin_test_by_size_of_the_loss():
    assert beyond_margin(single(0, 4, 40), 0.1) > 0.3  # exactly the margin
    assert beyond_margin(single(0, 10, 40), 0.1) < 0.0125  # a quarter of the items
    assert beyond_margin(single(0, 3, 3), 0.1) >= 1 / 8  # three items of three lost: never clear


@given(st.integers(0, 30), st.integers(0, 30), st.integers(0, 30), st.sampled_from([0.0, 0.05, 0.1, 0.3]))
def test_margin_test_never_counts_a_solved_item_against(wins, losses, ties, margin):
    n = wins + losses + ties
    if not n:
        return
    before = beyond_margin(single(wins, losses, n), margin)
    if losses:  # a lost item is solved after all
        assert beyond_margin(single(wins, losses - 1, n), margin) >= before - 1e-12
    if ties:  # an item that both failed is won
        assert beyond_margin(single(wins + 1, losses, n), margin) >= before - 1e-12


def test_margin_test_counts_identities():
    """Two equal items per identity: 20 identities count like 20 items, not like 40."""
    pairs = [Cluster(2, 0, 2)] * 6 + [Cluster(2, 2, 0)] * 1 + [Cluster(2, 0, 0)] * 13
    assert beyond_margin(pairs, 0.1) == pytest.approx(beyond_margin(single(1, 6, 20), 0.1), rel=1e-9)


@pytest.mark.parametrize("n", [8, 20, 40])
@pytest.mark.parametrize("level", [0.05, 0.0125])
def test_margin_test_keeps_its_level(n, level):
    """Return the largest chance of a false alarm over slices that lost exactly the margin; the score test is asymptotic."""
    margin = 0.1
    cells = [(won, lost, n - won - lost) for lost in range(n + 1) for won in range(n - lost + 1)]
    alarms = [cell for cell in cells if beyond_margin(single(*cell[:2], n), margin) < level]
    assert max(_chance(alarms, n, win, win + margin) for win in (0.0, 0.05, 0.1, 0.2, 0.3, 0.45)) < 1.6 * level


def _chance(cells, n, win, loss):
    return multinomial.pmf(cells, n, [win, loss, max(1 - win - loss, 0)]).sum()
