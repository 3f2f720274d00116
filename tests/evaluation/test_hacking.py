"""Signs that a reward is gamed, and what the gate makes of them."""

from __future__ import annotations

from statistics import fmean, pvariance

import pytest

from clawpipe.core.config.night import Gate, NightConfig
from clawpipe.core.store.digests import sha256_json
from clawpipe.core.store.refs import StepResult
from clawpipe.learn.evaluation.verdict.gate import decide
from clawpipe.learn.evaluation.verdict.hacking import training_of
from clawpipe.learn.evaluation.verdict.verdict import Decision, MeanReward, Training
from tests.evaluation.test_gate import RULES, night

FLAT, BETTER = night(20, 20, 60, 60), night(40, 8, 80, 32)
HOLDING = RULES.model_copy(update={"hold_on_signs": True})


def rewards(*rounds: list[float]) -> Training:
    return Training(rewards=tuple(MeanReward(n=len(one), mean=fmean(one), variance=pvariance(one)) for one in rounds))


def verdict_on(evidence, training: Training, rules: Gate = RULES):
    return decide(evidence.model_copy(update={"training": training}), rules)


LOW, HIGH = [0.0, 1.0] * 40, [1.0, 1.0, 1.0, 0.0] * 20  # 0.5 and 0.75 of 80: 3.4 standard errors apart


def test_a_reward_that_rises_while_held_out_success_does_not():
    (sign,) = verdict_on(FLAT, rewards(LOW, LOW, HIGH)).warnings
    assert "from 0.500 to 0.750" in sign
    assert "+0.0 points" in sign


def test_a_reward_that_rises_where_held_out_success_could_rise():
    assert verdict_on(night(1, 1, 154, 4), rewards(LOW, HIGH)).warnings  # 5 items: 1/32


@pytest.mark.parametrize(
    ("evidence", "training"),
    [
        (BETTER, rewards(LOW, HIGH)),  # held-out success rose, too
        (FLAT, rewards(LOW[:8], HIGH[:8])),  # 1.07 standard errors apart
        (night(1, 1, 155, 3), rewards(LOW, HIGH)),  # the incumbent fails on 4 items: 1/16 is no significant gain
        (FLAT, rewards(HIGH, LOW)),
        (FLAT, rewards(HIGH)),
        (FLAT, Training()),
    ],
)
def test_what_is_no_sign(evidence, training):
    assert verdict_on(evidence, training).warnings == ()


@pytest.mark.parametrize(
    ("before", "after", "evidence", "drifts"),
    [
        (20, 40, BETTER, True),
        (20, 39, BETTER, False),
        (40, 20, FLAT, True),
        (40, 20, BETTER, False),
        (0, 20, FLAT, False),
    ],
)
def test_length_drifts_at_twice_or_half_for_no_gain(before, after, evidence, drifts):
    found = verdict_on(evidence, Training(reply_tokens={"champion": before, "candidate": after, "base": 1})).warnings
    assert bool(found) == drifts
    assert not drifts or f"{after} tokens on average, and those of the champion {before}" in found[0]


@pytest.mark.parametrize(
    "training", [Training(signs=("prm praises length",)), Training(reply_tokens={"champion": 1, "candidate": 9})]
)
def test_signs_hold_a_promotion_only_where_rules_say_so(training):
    assert verdict_on(BETTER, training).decision == Decision.PROMOTE
    held = verdict_on(BETTER, training, HOLDING)
    assert held.decision == Decision.HOLD
    assert "gate.hold_on_signs" in held.reasons[1]
    assert verdict_on(BETTER, Training(), HOLDING).decision == Decision.PROMOTE
    assert verdict_on(night(8, 40, 80, 32), training, HOLDING).decision == Decision.REJECT


def test_training_is_read_from_the_steps_of_the_night():
    mean = {"n": 4, "mean": 0.5, "variance": 0.25}
    scored = [
        StepResult(details={"scores": 4, "reward": mean, "warnings": ["a judge says the same"]}),
        StepResult(details={"versions": {}, "warnings": ["log-probs are off"]}),
        StepResult(details={"scores": 4, "reward": mean | {"mean": 0.75}, "warnings": ["a judge says the same"]}),
        StepResult(details={"scores": 2}),
    ]
    evaluated = {"base": StepResult(details={"reply_tokens": 8.0}), "candidate": StepResult(details={"success": 1})}
    found = training_of(scored, evaluated)
    assert found.signs == ("a judge says the same",)
    assert [reward.mean for reward in found.rewards] == [0.5, 0.75]
    assert found.reply_tokens == {"base": 8.0}


def test_keys_of_nights_before_the_setting_stay():
    assert sha256_json(Gate(hold_on_signs=False)) == sha256_json(Gate())
    assert sha256_json(Gate(hold_on_signs=True)) != sha256_json(Gate())
    assert "hold_on_signs" not in Gate().result_fields()


@pytest.mark.parametrize(
    ("scorers", "given", "holds"),
    [([], None, False), (["verifier"], None, False), (["rules"], None, True), (["rules"], False, False), ([], True, True)],
)
def test_judged_nights_hold_on_signs_unless_told_otherwise(scorers, given, holds):
    config = NightConfig.model_validate({"scorers": [{"name": name} for name in scorers], "gate": {"hold_on_signs": given}})
    assert config.gate_rules.hold_on_signs is holds
