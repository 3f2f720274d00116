"""What rounding explains of the distance between recorded and own log-probs, and what only another temperature or kind does."""

from __future__ import annotations

import numpy as np
import pytest

from clawpipe.errors import DataError
from clawpipe.model.policy.agreement import bound_of
from clawpipe.play.recorded.agreement import BOUND, agreement, require_agreement

SIZES = [*range(2, 26), 200]


def drawn(seed, noise=0.0, peak=2.0):
    """logprobs(T): those at T of one draw at 0.8 a token, row by row, with rounding of about `noise` nats in the logits."""
    random = np.random.default_rng(seed)
    logits = [random.normal(0, peak, (size, 50)) for size in SIZES]
    rough = [row + random.normal(0, noise, row.shape) if noise else row for row in logits]
    tempered = [np.exp(row / 0.8) / np.exp(row / 0.8).sum(-1, keepdims=True) for row in logits]
    ids = [[random.choice(50, p=place) for place in row] for row in tempered]

    def logprobs(temperature, rounded=False):
        scaled = [row / temperature for row in (rough if rounded else logits)]
        full = [row - np.log(np.exp(row).sum(-1, keepdims=True)) for row in scaled]
        return [row[np.arange(len(chosen)), chosen] for row, chosen in zip(full, ids, strict=True)]

    return logprobs


def figures(own, recorded):
    return agreement([{"logprobs": row, "loss_mask": [True] * len(row)} for row in recorded], [np.asarray(row) for row in own])


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize("noise", [0.0, 0.02, 0.06])
def test_rounding_of_any_size_passes(seed, noise):
    logprobs = drawn(seed, noise)
    found = figures(logprobs(0.8), logprobs(0.8, rounded=True))
    assert (found.is_off(BOUND), found.rows_off(BOUND)) == (False, 0)
    require_agreement(found, "v", "v")


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("noise", [0.0, 0.04])
@pytest.mark.parametrize("peak", [1.0, 3.0])
@pytest.mark.parametrize("temperature", [0.7, 0.9, 1.0])
def test_another_temperature_is_refused_with_its_figures(seed, noise, peak, temperature):
    logprobs = drawn(seed, noise, peak)
    own, recorded = logprobs(0.8), logprobs(temperature, rounded=True)
    found = figures(own, recorded)
    gap = np.concatenate(own) - np.concatenate(recorded)
    assert found.difference == pytest.approx(np.abs(gap).mean(), abs=1e-5)
    assert found.largest == pytest.approx(np.abs(gap).max(), abs=1e-5)
    assert found.tilt == pytest.approx(np.polyfit((np.concatenate(own) + np.concatenate(recorded)) / 2, gap, 1)[0], abs=1e-5)
    assert np.sign(found.tilt) == np.sign(temperature - 0.8)
    with pytest.raises(
        DataError, match=rf"{found.difference:.2f} nats per token from its own .* factor of up to {np.exp(found.largest):.3g}"
    ):
        require_agreement(found, "v", "v")


@pytest.mark.parametrize("share", [2, 4, 25])
@pytest.mark.parametrize("noise", [0.0, 0.04])
def test_rows_are_judged_one_by_one(share, noise):
    """A half, a quarter, and only the longest row of a version's rows are raw ones."""
    logprobs = drawn(0, noise)
    wrong = {row for row in range(len(SIZES)) if row % share == share - 1}
    mixed = [
        raw if row in wrong else tempered
        for row, (raw, tempered) in enumerate(zip(logprobs(1.0, rounded=True), logprobs(0.8, rounded=True), strict=True))
    ]
    found = figures(logprobs(0.8), mixed)
    assert {row for row, part in enumerate(found.parts) if part.is_off(BOUND)} <= wrong
    with pytest.raises(DataError, match=rf"; {found.rows_off(BOUND)} of {len(SIZES)} rows are off"):
        require_agreement(found, "v", "v")


@pytest.mark.parametrize("kept", [0.8, 0.9])
def test_a_renormalized_draw_is_a_shift(kept):
    """Of top_p: each log-prob is up by at most -log(kept)."""
    own = drawn(1, 0.04)(0.8)
    with pytest.raises(DataError, match="neither a mean difference of -0"):
        require_agreement(figures(own, [row - np.log(kept) for row in own]), "v", "v")


def test_a_single_token_far_off_is_refused_and_named():
    own = drawn(2)(0.8)
    recorded = [row.copy() for row in own]
    recorded[-1][7] -= 3
    with pytest.raises(DataError, match=r"a factor of up to 20\.1; 1 of 25 rows are off"):
        require_agreement(figures(own, recorded), "v", "v")


def test_certain_tokens_and_single_ones_are_no_evidence():
    certain = [np.zeros(30), np.array([-1e-4] * 12), np.array([-0.3])]
    found = figures(certain, [row + 1e-3 for row in certain])
    require_agreement(found, "v", "v")
    assert found.rows_off(BOUND) == 0


def test_the_bound_is_that_of_the_coarsest_engine():
    logprobs = drawn(3, 0.18)
    found = figures(logprobs(0.8), logprobs(0.8, rounded=True))
    with pytest.raises(DataError):
        require_agreement(found, "v", "v")
    require_agreement(found, "v", "v", bound_of("bfloat16", "int8"))
