"""Which round's policy is the candidate."""

from __future__ import annotations

import random
from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clawpipe.learn.evaluation.rounds import Asked, Choice, Measured, Tried, choose_round, fallen_slices, intraclass_correlation

ALPHA = 0.05
# Successes of rollouts at temperature 0.8 of a night whose last round forgot the calculator: eight rollouts of each item.
BEFORE = {"calc": [2, 3, 1, 4, 2, 1, 3, 2, 2, 2], "price": [1, 0, 0, 1, 0, 1, 1, 0, 1, 1, 0], "stock": [0, 0, 1, 0, 0, 0]}
FIRST = {"calc": [6, 5, 6, 7, 5, 6, 4, 6, 6, 6], "price": [2, 3, 2, 3, 2, 2, 3, 2, 3, 2], "stock": [0] * 8}
LAST = {"calc": [1, 0, 2, 1, 2, 0, 1, 1, 2, 1], "price": [7, 8, 7, 8, 6, 8, 7, 8, 7, 8], "stock": [0] * 8}


def policy(number: int, slices: Mapping[str, list[int]], of: int = 8, prefix: str = "") -> Measured:
    """A policy whose items are its own, unless a prefix names them."""
    items = {
        Asked(f"{prefix or number}-{name}-{place}", name): Tried(won, of)
        for name, counts in slices.items()
        for place, won in enumerate(counts)
    }
    return Measured(number, f"policy-{number}", items)


def chosen(*slices: Mapping[str, list[int]], of: int = 8) -> Choice:
    start, *trained = [policy(number, counts, of) for number, counts in enumerate(slices)]
    return choose_round(start, trained, ALPHA)


def test_a_round_that_forgot_a_slice_yields_to_the_one_before():
    choice = chosen(BEFORE, FIRST, LAST)
    assert (choice.round, choice.of, choice.policy_version, choice.all_lost) == (1, 2, "policy-1", False)
    assert choice.rounds[2].success > choice.rounds[1].success  # its mean is the better one
    assert choice.rounds[2].lost == ["calc"]
    assert choice.reason == (
        "Round 1 of 2 is the candidate: round 2 lost calc, and of those left it has the best mean success on training items "
        "(0.370)."
    )


def test_the_table_holds_the_start_and_the_changes_from_it():
    start, first, last = chosen(BEFORE, FIRST, LAST).rounds
    assert (start.round, start.slices["calc"].success, start.slices["calc"].change) == (0, 22 / 80, None)
    assert (first.slices["calc"].successes, first.slices["calc"].rollouts, first.slices["calc"].items) == (57, 80, 10)
    assert first.slices["calc"].change == pytest.approx(57 / 80 - 22 / 80)
    assert last.slices["price"].change == pytest.approx(74 / 80 - 6 / 88)


def test_the_better_mean_is_taken_where_no_slice_is_lost():
    assert chosen(BEFORE, FIRST, {**FIRST, "price": [6] * 10}).round == 2
    assert chosen(BEFORE, {**FIRST, "price": [6] * 10}, FIRST).round == 1


def test_a_small_fall_below_the_start_is_no_loss():
    """Its calculator is a point below the start's, and surely below round 1's."""
    choice = chosen(BEFORE, FIRST, {**LAST, "calc": [2, 3, 1, 4, 2, 1, 3, 2, 2, 1]})
    assert (choice.round, choice.rounds[2].lost) == (2, [])


def test_few_rollouts_decide_nothing():
    """One item of one rollout, which only the start solved."""
    start, first, last = ({**FIRST, "rare": [0]}, {**FIRST, "rare": [0]}, {**FIRST, "price": [8] * 10, "rare": [0]})
    items = dict(policy(0, start).items) | {Asked("0-rare-0", "rare"): Tried(1, 1)}
    thin = [dict(policy(n, each).items) | {Asked(f"{n}-rare-0", "rare"): Tried(0, 1)} for n, each in ((1, first), (2, last))]
    rounds = [Measured(number, f"policy-{number}", each) for number, each in enumerate(thin, start=1)]
    assert choose_round(Measured(0, "policy-0", items), rounds, ALPHA).round == 2


def test_every_round_that_lost_is_said_so():
    high = {"calc": [8, 7, 8, 8, 7, 8, 8, 7], "price": [1] * 8}
    choice = chosen(high, {"calc": [3, 2, 3, 4, 3, 3, 2, 3], "price": [6] * 8}, {"calc": [0, 1] * 4, "price": [8] * 8})
    assert (choice.round, choice.all_lost) == (1, True)
    assert choice.reason == (
        "Round 1 of 2 is the candidate, although every round lost a slice: it lost least, 59.4 points of calc."
    )


def test_equal_rounds_are_a_tie_that_the_later_one_wins():
    assert chosen(BEFORE, FIRST, FIRST, FIRST).round == 3
    assert chosen(BEFORE, FIRST, FIRST, LAST).round == 2


def test_a_later_round_as_good_as_the_best_is_taken():
    """One success fewer of 240 is within the error of the difference; two of three in each item are not."""
    close = chosen(BEFORE, FIRST, {**FIRST, "price": [2, 3, 2, 3, 2, 2, 3, 2, 3, 1]})
    assert (close.round, close.rounds[2].success < close.rounds[1].success) == (2, True)
    assert close.reason == (
        f"Round 2 of 2 is the candidate: it has a mean success on training items ({close.rounds[2].success:.3f}) within a standard "
        f"error of round 1's ({close.rounds[1].success:.3f}), and no round lost a slice."
    )
    assert chosen(BEFORE, {**FIRST, "price": [6] * 10}, {**FIRST, "price": [3] * 10}).round == 1


def test_a_later_round_surely_worse_in_a_slice_is_not_taken():
    """Its mean is the same: what stock gained, the calculator lost, which is still above the start's."""
    swung = {"calc": [4] * 10, "price": FIRST["price"], "stock": [2, 1, 3, 2, 2, 3, 2, 3]}
    choice = chosen(BEFORE, {**FIRST, "calc": [7] * 10}, swung)
    assert choice.rounds[2].lost == []
    assert choice.round == 1


def test_a_slice_that_a_round_never_drew_is_not_lost_there():
    unseen = {name: counts for name, counts in FIRST.items() if name != "stock"}
    choice = chosen(BEFORE, FIRST, unseen)
    assert "stock" not in choice.rounds[2].slices
    assert choice.round == 2


def test_rounds_without_a_common_slice_compare_all_rollouts():
    assert chosen({"a": [1]}, {"b": [8]}, {"c": [2]}).round == 1


def test_a_policy_that_was_not_measured_is_not_chosen():
    start, first = policy(0, BEFORE), policy(1, FIRST)
    assert choose_round(start, [first, Measured(2, "policy-2", {})], ALPHA).round == 1
    choice = choose_round(start, [Measured(1, "policy-1", {}), Measured(2, "policy-2", {})], ALPHA)
    assert (choice.round, choice.rounds) == (2, ())
    assert choose_round(Measured(0, "policy-0", {}), [first], ALPHA).round == 1


def test_shared_items_make_a_difference_surer():
    """Items that differ much: on the same ones the fall is sure, on others it may be the items."""
    before, after = {"calc": [8, 8, 8, 8, 0, 0, 0, 0]}, {"calc": [6, 6, 6, 6, 0, 0, 0, 0]}
    rates = [
        choose_round(policy(0, before, prefix=name), [policy(1, after, prefix=other)], ALPHA).rounds[1].slices["calc"]
        for name, other in (("same", "same"), ("one", "other"))
    ]
    assert rates[0].change == rates[1].change == -0.125
    assert rates[0].error is not None
    assert rates[1].error is not None
    assert rates[0].error < rates[1].error / 2


def test_a_round_that_answers_alike_has_an_error_of_0():
    """Each item decides, and all tried the same ones: what is subtracted is the whole variance, and rounding may take more."""
    start, *trained = [policy(number, {"calc": [1, 1, 0, 0, 0]}, of=1, prefix="same") for number in range(3)]
    rate = choose_round(start, trained, ALPHA).rounds[1].slices["calc"]
    assert (rate.change, rate.error) == (0, pytest.approx(0, abs=1e-8))


def test_fallen_slices_names_what_fell_between_two_rounds():
    assert fallen_slices(policy(1, FIRST), policy(2, LAST), ALPHA) == {"calc": (57 / 80, 11 / 80)}
    assert fallen_slices(policy(1, FIRST), policy(2, FIRST), ALPHA) == {}
    assert fallen_slices(policy(1, FIRST), Measured(2, "policy-2", {}), ALPHA) == {}


@pytest.mark.parametrize(
    ("counts", "of", "expected"),
    [
        ([8, 0], 8, 1.0),  # the item decides
        ([4, 4, 4, 4], 8, 0.0),  # it decides nothing, less than chance would
        ([1, 0, 1], 1, 1.0),  # one rollout each: nobody knows
        ([3], 8, 1.0),  # one item: nobody knows
        ([0, 0, 0], 8, 1.0),  # nothing varies
        # Donner's estimator by hand: mean squares 8 * (2 * .0625) = 1 between, 6 * 1.5 ... = (2 * 1.5) / 14 within
        ([2, 6], 8, (1.0 - 3.0 / 14) / (1.0 + 7 * 3.0 / 14)),
    ],
)
def test_how_much_the_rollouts_of_an_item_agree(counts: list[int], of: int, expected: float):
    stratum = {Asked(str(place), "calc"): Tried(won, of) for place, won in enumerate(counts)}
    assert intraclass_correlation([stratum]) == pytest.approx(expected)


slices = st.dictionaries(st.sampled_from("abc"), st.lists(st.integers(0, 4), min_size=1, max_size=5), min_size=1)


@settings(deadline=None, max_examples=100)
@given(st.lists(slices, min_size=2, max_size=4), st.randoms(use_true_random=False))
def test_the_order_of_items_has_no_influence(counts: list[dict[str, list[int]]], shuffle: random.Random):
    start, *trained = [policy(number, each, of=4) for number, each in enumerate(counts)]

    def mixed(one: Measured) -> Measured:
        names = list(one.items)
        shuffle.shuffle(names)
        return Measured(one.round, one.policy_version, {name: one.items[name] for name in names})

    assert choose_round(mixed(start), [mixed(each) for each in trained], ALPHA) == choose_round(start, trained, ALPHA)


@settings(deadline=None, max_examples=100)
@given(st.lists(slices, min_size=2, max_size=4))
def test_a_start_that_solves_nothing_cannot_be_lost_to(counts: list[dict[str, list[int]]]):
    nothing = {name: [0] * len(won) for name, won in counts[0].items()}
    start, *trained = [policy(number, each, of=4) for number, each in enumerate([nothing, *counts[1:]])]
    choice = choose_round(start, trained, ALPHA)
    assert not choice.all_lost
    assert choice.round in range(1, len(counts))
    best = max(choice.rounds[1:], key=lambda rate: rate.success)
    assert choice.round >= best.round or choice.rounds[choice.round].success == best.success


same = st.lists(st.tuples(st.integers(0, 8), st.integers(5, 8), st.integers(0, 3)), min_size=4, max_size=8)


@settings(deadline=None, max_examples=200)
@given(st.dictionaries(st.sampled_from("abc"), same, min_size=1))
def test_a_round_much_worse_in_every_slice_is_never_chosen(counts: dict[str, list[tuple[int, int, int]]]):
    start, better, worse = ({name: [row[place] for row in rows] for name, rows in counts.items()} for place in range(3))
    assert chosen(start, better, worse).round == 1
    assert chosen(start, worse, better).round == 2


@settings(deadline=None, max_examples=100)
@given(slices, slices, st.sampled_from([0, 1]), st.sampled_from([0, 1]))
def test_a_slice_of_one_rollout_is_never_lost(first: dict, last: dict, before: int, after: int):
    each = [dict(policy(number, counts, of=4).items) for number, counts in enumerate([first, first, last])]
    for number, won in ((0, before), (1, before), (2, after)):
        each[number][Asked(f"{number}-rare", "rare")] = Tried(won, 1)
    start, *trained = [Measured(number, f"policy-{number}", items) for number, items in enumerate(each)]
    choice = choose_round(start, trained, ALPHA)
    assert all("rare" not in rate.lost for rate in choice.rounds)


def test_a_round_without_training_still_counts_as_a_round():
    choice = choose_round(policy(0, BEFORE), [policy(1, BEFORE), policy(3, FIRST)], ALPHA)
    assert (choice.round, choice.of) == (3, 3)
    assert choice.reason.startswith("Round 3 of 3 is the candidate")
    assert choose_round(policy(0, BEFORE), [Measured(3, "policy-3", {})], ALPHA).reason.startswith("Round 3 of 3")
