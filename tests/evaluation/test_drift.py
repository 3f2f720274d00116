"""Early signs between the rollouts of two rounds."""

from __future__ import annotations

import pytest

from clawpipe.core.config.methods import MethodName
from clawpipe.learn.evaluation import drift
from clawpipe.learn.evaluation.rounds import Asked, Measured, Tried
from clawpipe.learn.evaluation.sampled import Length

UNKNOWN = (None, None)


Lengths = tuple[Length | None, Length | None]


def signs_between(before: Measured, after: Measured, lengths: Lengths, method: MethodName = "grpo") -> list[str]:
    return drift.signs_between(before, after, lengths, method)


def policy(number: int, **won: list[int]) -> Measured:
    items = {
        Asked(f"{number}-{name}-{place}", name): Tried(count, 8)
        for name, counts in won.items()
        for place, count in enumerate(counts)
    }
    return Measured(number, str(number), items)


def test_a_slice_that_fell_is_named_with_what_to_change():
    before = policy(1, calc=[6, 5, 6, 6, 5, 6, 6, 6], price=[2] * 8)
    [sign] = signs_between(before, policy(2, calc=[1, 2, 1, 0, 1, 1, 2, 1], price=[8] * 8), UNKNOWN)
    assert sign == (
        "Slice 'calc' fell from 0.719 to 0.141 of its rollouts with the training of round 2: halve train.learning_rate, "
        "or set train.loss.kl_coef (0.05) to stay near the start."
    )
    [sign] = signs_between(before, policy(2, calc=[1] * 8, price=[8] * 8), UNKNOWN, "dpo")  # which takes no kl_coef
    assert "or double train.dpo.beta to stay near the start" in sign


def test_a_fall_of_few_rollouts_is_no_sign():
    assert signs_between(policy(1, calc=[4, 5]), policy(2, calc=[3, 2]), UNKNOWN) == []
    assert signs_between(policy(1), policy(2, calc=[3, 2]), UNKNOWN) == []


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        (Length(256, 10.0, 16.0), Length(256, 15.1, 16.0), "longer: 15.1 sampled tokens on average, 10.0"),
        (Length(256, 15.1, 16.0), Length(256, 10.0, 16.0), "shorter: 10.0 sampled tokens on average, 15.1"),
    ],
)
def test_rollouts_half_as_long_again_are_a_sign(before: Length, after: Length, words: str):
    [sign] = signs_between(policy(1), policy(2), (before, after))
    assert words in sign
    assert ("rollouts.max_new_tokens" in sign) == ("longer" in sign)


def test_fewer_words_with_more_success_are_no_sign():
    long, short = Length(256, 30.0, 16.0), Length(256, 15.0, 16.0)
    worse, better = policy(1, calc=[1] * 8), policy(2, calc=[7] * 8)
    assert signs_between(worse, better, (long, short)) == []
    assert "longer" in " ".join(signs_between(worse, better, (short, long)))
    assert "shorter" in " ".join(signs_between(better, worse, (long, short)))
    mixed = policy(2, calc=[7] * 8, price=[0] * 8)
    assert "shorter" in " ".join(signs_between(policy(1, calc=[1] * 8, price=[7] * 8), mixed, (long, short)))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (Length(256, 10.0, 16.0), Length(256, 14.9, 16.0)),
        (Length(4, 10.0, 400.0), Length(4, 20.0, 400.0)),  # four rollouts tell nothing
        (None, Length(256, 15.1, 16.0)),
        (Length(256, 0.0, 0.0), Length(256, 15.1, 16.0)),
    ],
)
def test_lengths_that_may_be_chance_are_none(before: Length | None, after: Length | None):
    assert signs_between(policy(1), policy(2), (before, after)) == []
