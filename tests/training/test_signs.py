"""Early signs in the metrics of a round's training."""

from __future__ import annotations

import pytest

from clawpipe.core.config.methods import METHODS, MethodName
from clawpipe.core.config.training import Train
from clawpipe.learn.training import signs


def signs_of(rows: list[dict[str, float]], method: MethodName = "grpo") -> list[str]:
    return signs.signs_of(rows, METHODS[method])


def steps(**metrics: list[float]) -> list[dict[str, float]]:
    return [dict(zip(metrics, values, strict=True)) for values in zip(*metrics.values(), strict=True)]


# A night of the demo whose last step went too far, and one that learns letters from nothing as it should.
TOO_FAR = steps(ratio_max=[1.0, 3.1, 5.2, 227.0], approx_kl=[0.0, 0.01, 0.04, 0.35], entropy=[1.1, 1.0, 0.9, 0.8])
AS_IT_SHOULD = steps(
    ratio_max=[1.0, 1.4, 1.8, 2.4, 2.4, 3.3, 3.4, 7.0],
    approx_kl=[0.0, 0.018, 0.072, 0.114, 0.185, 0.271, 0.302, 0.444],
    entropy=[4.37, 4.18, 4.11, 3.82, 3.98, 3.62, 3.68, 3.64],
)


def test_a_step_that_went_too_far_is_named_with_what_to_change():
    tail, divergence = signs_of(TOO_FAR)
    assert tail == (
        "The largest importance ratio was 227 in optimizer step 4 of 4, beyond 20: few tokens move the policy. "
        "Halve train.learning_rate, or stop earlier with train.max_kl."
    )
    assert "was 0.35 nats per token in optimizer step 4 of 4" in divergence
    assert "train.max_kl" in divergence


def test_a_training_that_goes_well_gives_no_sign():
    assert signs_of(AS_IT_SHOULD) == []
    assert signs_of(steps(loss=[0.9, 0.5])) == []  # of a method that computes none of these
    assert signs_of([]) == []


@pytest.mark.parametrize(
    ("kl", "seen"),
    [
        ([0.0, 0.51], True),
        ([0.0, 0.2], False),  # the first steps may grow from 0 by any factor
        ([0.0, 0.05, 0.1501], True),
        ([0.0, 0.05, 0.15], False),
        ([0.0, 0.01, 0.09], False),  # small, whatever it was before
        ([0.0, 0.49, 0.1], False),
    ],
)
def test_the_divergence_counts_where_it_is_large_or_jumps(kl: list[float], seen: bool):
    assert bool(signs_of(steps(approx_kl=kl))) is seen


@pytest.mark.parametrize(("entropy", "seen"), [([2.0, 1.5, 0.99], True), ([2.0, 0.5, 1.0], False), ([0.3], False)])
def test_entropy_counts_where_half_of_it_is_gone(entropy: list[float], seen: bool):
    found = signs_of(steps(entropy=entropy))
    assert bool(found) is seen
    assert not seen or "from 2.000 to 0.990 nats" in found[0]


def test_a_metric_that_some_steps_lack_is_read_where_it_is():
    rows = [{"ratio_max": 30.0}, {"loss": 1.0}, {"ratio_max": 25.0}]
    assert "30 in optimizer step 1 of 3" in signs_of(rows)[0]


@pytest.mark.parametrize("method", METHODS)
def test_advice_names_settings_that_the_method_takes(method: MethodName):
    [narrow] = signs_of(steps(entropy=[2.0, 0.5]), method)
    for advice in (narrow, METHODS[method].stays_near):
        setting = next(name for name in ("loss.kl_coef", "loss.entropy_coef", f"{method}.beta") if f"train.{name}" in advice)
        block, field = setting.split(".")
        assert Train.model_validate({"method": method, block: {field: 0.2}})
