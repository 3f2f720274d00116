import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar
from scipy.stats import binom, binomtest, multinomial, norm

from clawpipe.config.night import EnvironmentConfig, Gate
from clawpipe.evaluation.statistics import beyond_margin, items_needed, mcnemar, power, wilson

counts = st.integers(0, 60)


@given(st.integers(1, 400), st.floats(0, 1), st.sampled_from([0.8, 0.9, 0.95, 0.99]))
def test_wilson_equals_scipy(n, share, confidence):
    k = round(share * n)
    oracle = binomtest(k, n).proportion_ci(confidence, method="wilson")
    assert wilson(k, n, confidence) == pytest.approx((oracle.low, oracle.high), abs=1e-12)


@given(counts, counts)
def test_mcnemar_equals_scipys_binomial_test(wins, losses):
    oracle = binomtest(wins, wins + losses, alternative="greater").pvalue if wins + losses else 1.0
    assert mcnemar(wins, losses) == pytest.approx(oracle, rel=1e-9)


@given(counts, counts)
def test_both_tails_overlap_in_the_observed_count_only(wins, losses):
    observed = binom.pmf(wins, wins + losses, 0.5)
    assert mcnemar(wins, losses) + mcnemar(losses, wins) == pytest.approx(1 + observed)


def test_mcnemar_by_hand():
    assert mcnemar(0, 0) == 1
    assert mcnemar(3, 0) == 1 / 8
    assert mcnemar(3, 1) == 5 / 16  # C(4,3) + C(4,4) of 16
    assert mcnemar(0, 4) == 1


def test_mcnemar_of_thousands_of_items_neither_overflows_nor_stalls():
    assert mcnemar(3000, 2800) == pytest.approx(binomtest(3000, 5800, alternative="greater").pvalue, rel=1e-9)


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


@pytest.mark.parametrize(("n_items", "gain", "discordant"), [(50, 0.2, 0.5), (160, 0.2, 0.6), (160, 0.3, 0.3), (97, 0.0, 1.0)])
def test_power_equals_the_sum_over_discordant_counts_by_scipy(n_items, gain, discordant):
    share = (discordant + gain) / (2 * discordant)
    fewest = [int(binom.isf(0.05, m, 0.5)) + 1 for m in range(n_items + 1)]  # isf: smallest k with P(X > k) <= 0.05
    fewest = [k if binom.sf(k - 1, m, 0.5) < 0.05 else k + 1 for m, k in enumerate(fewest)]
    oracle = sum(binom.pmf(m, n_items, discordant) * binom.sf(fewest[m] - 1, m, share) for m in range(n_items + 1))
    assert power(n_items, gain, discordant, 0.05) == pytest.approx(oracle, rel=1e-6)


def test_power_of_few_items_by_enumeration():
    # Two items, both discordant, won with probability 0.75: p = 1/4 for two wins.
    assert power(2, 0.5, 1.0, 0.3) == pytest.approx(0.75**2)
    assert power(2, 0.5, 1.0, 0.25) == 0  # p must be below alpha, not equal to it
    assert power(2, 0.2, 0.2, 0.6) == pytest.approx(1 - 0.8**2)  # one win in a row: p = 1/2; all discordant items are wins


@pytest.mark.parametrize("discordant", [0.2, 0.3, 0.4, 0.5, 0.6])
def test_default_heldout_set_sees_a_gain_of_20_points_nine_times_in_ten(discordant):
    assert power(EnvironmentConfig().heldout_items, 0.2, discordant, Gate().alpha) >= 0.9


@pytest.mark.parametrize(("gain", "discordant"), [(0.05, 0.2), (0.2, 0.4), (0.1, 0.6)])
def test_items_needed_reach_the_power_they_promise(gain, discordant):
    needed = items_needed(gain, discordant, 0.05, 0.9)
    assert power(needed, gain, discordant, 0.05) == pytest.approx(0.9, abs=0.03)


def test_margin_test_without_a_margin_is_the_exact_test_or_more_cautious():
    for wins in range(12):
        for losses in range(12):
            assert beyond_margin(wins, losses, 24, 0.0) >= mcnemar(losses, wins)


@pytest.mark.parametrize(
    ("wins", "losses", "n", "margin"), [(2, 14, 40, 0.1), (0, 10, 40, 0.1), (9, 30, 80, 0.05), (5, 40, 60, 0.3)]
)
def test_margin_test_equals_the_score_test_with_a_numerical_maximum_likelihood(wins, losses, n, margin):
    def unlikely(win):  # minus the log-likelihood where the loss rate exceeds the win rate by exactly the margin
        return -(wins * math.log(win) + losses * math.log(win + margin) + (n - wins - losses) * math.log(1 - 2 * win - margin))

    win = minimize_scalar(unlikely, bounds=(1e-12, (1 - margin) / 2 - 1e-12), method="bounded", options={"xatol": 1e-12}).x
    z = (losses - wins - n * margin) / math.sqrt(n * (2 * win + margin - margin**2))
    assert beyond_margin(wins, losses, n, margin) == pytest.approx(max(norm.sf(z), mcnemar(losses, wins)), rel=1e-3)


def test_margin_test_by_size_of_the_loss():
    assert beyond_margin(0, 4, 40, 0.1) > 0.3  # exactly the margin
    assert beyond_margin(0, 10, 40, 0.1) < 0.0125  # a quarter of the items
    assert beyond_margin(0, 3, 3, 0.1) >= 1 / 8  # three items of three lost: never clear


@given(st.integers(0, 30), st.integers(0, 30), st.integers(0, 30), st.sampled_from([0.0, 0.05, 0.1, 0.3]))
def test_margin_test_never_holds_a_solved_item_against_the_candidate(wins, losses, ties, margin):
    n = wins + losses + ties
    if losses:  # a lost item is solved after all
        assert beyond_margin(wins, losses - 1, n, margin) >= beyond_margin(wins, losses, n, margin) - 1e-12
    if ties:  # an item that both failed is won
        assert beyond_margin(wins + 1, losses, n, margin) >= beyond_margin(wins, losses, n, margin) - 1e-12


@pytest.mark.parametrize("n", [8, 20, 40])
@pytest.mark.parametrize("level", [0.05, 0.0125])
def test_margin_test_keeps_its_level(n, level):
    """Largest chance of a false alarm over all slices that lost exactly the margin; the score test is asymptotic, so not exact."""
    margin = 0.1
    cells = [(won, lost, n - won - lost) for lost in range(n + 1) for won in range(n - lost + 1)]
    alarms = [cell for cell in cells if beyond_margin(*cell[:2], n, margin) < level]
    assert max(_chance(alarms, n, win, win + margin) for win in (0.0, 0.05, 0.1, 0.2, 0.3, 0.45)) < 1.6 * level


def _chance(cells, n, win, loss):
    return multinomial.pmf(cells, n, [win, loss, max(1 - win - loss, 0)]).sum()
