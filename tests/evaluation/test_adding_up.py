"""Evidence that adds up over nights: what it is worth, how often it errs, and what the gate makes of it."""

import random
import sys

import pytest
from scipy.integrate import quad

from clawpipe.core.config.gate import Gate
from clawpipe.learn.evaluation.verdict.adding_up import tally_of
from clawpipe.learn.evaluation.verdict.evidence import user_slices
from clawpipe.learn.evaluation.verdict.gate import decide
from clawpipe.learn.evaluation.verdict.statistics import betting_evidence, nights_needed
from clawpipe.learn.evaluation.verdict.verdict import Tally
from tests.evaluation.test_gate import night

RULES = Gate(alpha=0.05, nights=30, min_effect=0.02, min_items=20, slice_margin=1.0, adds_up=True)


@pytest.mark.parametrize(("wins", "losses"), [(0, 0), (1, 0), (0, 3), (7, 0), (12, 5), (40, 40), (90, 60)])
def test_evidence_is_the_integral_over_all_bets(wins, losses):
    expected, _ = quad(lambda bet: (1 + bet) ** wins * (1 - bet) ** losses, 0, 1)
    assert betting_evidence(wins, losses) == pytest.approx(expected, rel=1e-6)


def test_seven_wins_without_a_loss_are_evidence_enough():
    assert betting_evidence(6, 0) < 20 < betting_evidence(7, 0)


def test_thousands_of_wins_are_evidence_as_well():
    """Where conversations are compared by likelihood, nearly all of them differ."""
    assert betting_evidence(1000, 0) == pytest.approx((2**1001 - 1) / 1001)
    assert betting_evidence(1100, 0) == betting_evidence(5000, 100) == sys.float_info.max
    assert betting_evidence(2000, 2000) < 1
    assert after(night(wins=20), Tally(wins=2000, losses=10, identities=2010)).decision == "PROMOTE"
    assert nights_needed(1200, 0.2, 1.0, 0.05, 0.9, 60) == 1
    assert nights_needed(1500, 1.0, 1.0, 0.05, 0.9, 60) == 1


def test_looking_each_night_errs_no_more_than_alpha():
    draw, wrong = random.Random(1), 0
    for _ in range(2000):
        wins = losses = 0
        for _ in range(60):  # nights of two items on which the models differ
            won = sum(draw.random() < 0.5 for _ in range(2))
            wins, losses = wins + won, losses + 2 - won
            if betting_evidence(wins, losses) >= 20:
                wrong += 1
                break
    assert wrong / 2000 <= 0.05


def test_the_nights_for_a_users_few_items():
    assert nights_needed(8, 1.0, 1.0, 0.05, 0.9, 60) == 1  # all eight are won
    assert nights_needed(4, 1.0, 1.0, 0.05, 0.9, 60) == 2
    assert nights_needed(1, 0.02, 1.0, 0.05, 0.9, 60) is None
    few, many = nights_needed(3, 0.3, 0.5, 0.05, 0.9, 60), nights_needed(30, 0.3, 0.5, 0.05, 0.9, 60)
    assert many < 5 < few


def after(evidence, *nights, seen=()):
    return decide(evidence.model_copy(update={"earlier": nights, "seen": frozenset(seen)}), RULES)


def test_one_night_of_few_items_holds_and_says_its_power():
    verdict = after(night(wins=4, both=16))
    assert verdict.decision == "HOLD"
    assert "of 20 fresh held-out items 4 were won and 0 lost" in verdict.reasons[0]
    assert "With 20 fresh items a night, a gain of 20.0 points shows nine times in ten within 2 nights." in verdict.reasons[0]
    assert verdict.tally == Tally(wins=4, losses=0, identities=20)


def test_the_same_night_promotes_after_others_like_it():
    verdict = after(night(wins=4, both=16), Tally(wins=4, losses=0, identities=20))
    assert verdict.decision == "PROMOTE"
    assert "in 2 nights since the last promotion" in verdict.reasons[0]


def test_nights_too_small_count_together():
    few = night(wins=4, both=6)
    assert "too few" in after(few).reasons[0]
    assert after(few).tally == Tally(wins=4, losses=0, identities=10)  # it counts later
    assert after(few, Tally(wins=4, losses=0, identities=10)).decision == "PROMOTE"


def test_tonights_candidate_must_be_better_itself():
    before = Tally(wins=30, losses=0, identities=40)
    assert after(night(wins=2, losses=2, both=16), before).decision == "HOLD"
    assert "But tonight's changed the success by 0.0 points" in after(night(wins=2, losses=2, both=16), before).reasons[0]
    assert after(night(losses=9, both=11), before).decision == "REJECT"


def test_what_was_looked_at_is_no_new_evidence():
    verdict = after(night(wins=10, both=10), seen=[f"item-{number}" for number in range(20)])
    assert verdict.decision == "HOLD"
    assert verdict.tally == Tally(wins=0, losses=0, identities=0)
    assert "no new evidence" in verdict.reasons[0]


def test_items_of_one_identity_are_one_observation():
    gains = [("a", 1), ("a", 1), ("a", -1), ("b", -1), ("c", 0), ("d", 1), ("d", -1)]
    assert tally_of(gains, seen=()) == Tally(wins=1, losses=1, identities=4)


def test_without_the_setting_nothing_adds_up():
    evidence = night(wins=4, both=56).model_copy(update={"earlier": (Tally(wins=40, losses=0, identities=60),)})
    verdict = decide(evidence, RULES.model_copy(update={"adds_up": False}))
    assert (verdict.decision, verdict.tally) == ("HOLD", None)


def test_users_with_enough_items_are_slices():
    rows = [{"item_id": f"ann{n}", "user_id": "ann"} for n in range(8)] + [
        {"item_id": f"bob{n}", "user_id": "bob"} for n in range(7)
    ]
    found = user_slices([*rows, {"item_id": "nobody", "user_id": None}])
    assert {found[f"ann{n}"] for n in range(8)} == {"user 49915e0d7d4b402e"}
    assert {found[f"bob{n}"] for n in range(7)} == {"other users"}
    assert "nobody" not in found
