"""Preference losses compared with formulas pair by pair, and their properties."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from clawpipe.core.config.training import Dpo
from clawpipe.learn.training.losses.preference import preference_loss

VARIANTS = ("sigmoid", "ipo", "sigmoid_norm")


@pytest.fixture
def streams():
    """Log-probs, reference log-probs and rows of four pairs whose sides have 1 to 8 tokens, in shuffled order."""
    generator = torch.Generator().manual_seed(0)
    rows = torch.repeat_interleave(torch.arange(8), torch.arange(1, 9))[torch.randperm(36, generator=generator)]
    logprobs = -3 * torch.rand(36, generator=generator, dtype=torch.float64)
    reference = logprobs + 0.5 * torch.randn(36, generator=generator, dtype=torch.float64)
    return logprobs, reference, rows


def written_out(variant, beta, nll_coef, logprobs, reference, rows):
    """Compute pair by pair in plain Python."""
    losses, tokens = [], list(zip(logprobs.tolist(), reference.tolist(), rows.tolist(), strict=True))
    for pair in range(4):
        sides = []
        for row in (2 * pair, 2 * pair + 1):
            of_row = [(lp, ref) for lp, ref, number in tokens if number == row]
            sides.append((sum(lp for lp, _ in of_row), sum(ref for _, ref in of_row), len(of_row)))
        (lp_c, ref_c, n_c), (lp_r, ref_r, n_r) = sides
        summed, averaged = (lp_c - ref_c) - (lp_r - ref_r), (lp_c - ref_c) / n_c - (lp_r - ref_r) / n_r
        contrast = {
            "sigmoid": math.log(1 + math.exp(-beta * summed)),
            "sigmoid_norm": math.log(1 + math.exp(-beta * averaged)),
            "ipo": (averaged - 1 / (2 * beta)) ** 2,
        }
        losses.append(contrast[variant] - nll_coef * lp_c / n_c)
    return losses


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("nll_coef", [0.0, 0.7])
def test_each_variant_is_its_formula(streams, variant, nll_coef):
    loss, _ = preference_loss(*streams, Dpo(beta=0.3, variant=variant, nll_coef=nll_coef))
    assert loss.tolist() == pytest.approx(written_out(variant, 0.3, nll_coef, *streams), rel=1e-12)


@pytest.mark.parametrize("variant", ["sigmoid", "sigmoid_norm"])
def test_smoothed_labels_mix_both_orders_of_each_pair(streams, variant):
    """Conservative DPO: with probability e the label is wrong, and what was rejected was better."""
    logprobs, reference, rows = streams
    swapped = rows + 1 - 2 * (rows % 2)
    plain, other = (preference_loss(logprobs, reference, order, Dpo(variant=variant, nll_coef=0))[0] for order in (rows, swapped))
    smoothed, _ = preference_loss(*streams, Dpo(variant=variant, nll_coef=0, label_smoothing=0.2))
    torch.testing.assert_close(smoothed, 0.8 * plain + 0.2 * other, rtol=1e-12, atol=0)


def test_the_loss_of_a_known_margin():
    """Own sums 0.3 above and 0.4 below the reference's: m = 0.1 * 0.7, and the loss is ln(1 + e^-0.07)."""
    reference = torch.tensor([-2.0, -3.0, -1.0])
    loss, metrics = preference_loss(reference + torch.tensor([0.1, 0.2, -0.4]), reference, torch.tensor([0, 0, 1]), Dpo(nll_coef=0))
    assert loss.item() == pytest.approx(0.658760, abs=1e-6)
    assert metrics["rewards_chosen"].item() == pytest.approx(0.03, abs=1e-6)
    assert metrics["rewards_rejected"].item() == pytest.approx(-0.04, abs=1e-6)
    assert metrics["margin"].item() == pytest.approx(0.07, abs=1e-6)
    assert metrics["accuracy"].item() == 1
    assert metrics["nll"].item() == pytest.approx(4.7 / 2, abs=1e-6)
    assert (metrics["lp_chosen"].item(), metrics["lp_rejected"].item()) == pytest.approx((-4.7, -1.4), abs=1e-6)


@pytest.mark.parametrize(("variant", "expected"), [("sigmoid", math.log(2)), ("sigmoid_norm", math.log(2)), ("ipo", 25.0)])
def test_a_policy_that_is_its_reference_has_no_margin(streams, variant, expected):
    logprobs, _, rows = streams
    loss, metrics = preference_loss(logprobs, logprobs, rows, Dpo(variant=variant, nll_coef=0))
    assert loss.tolist() == pytest.approx([expected] * 4)
    assert metrics["margin"] == 0
    assert metrics["accuracy"] == 0  # a draw is not won


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_contrast_raises_chosen_and_lowers_rejected_tokens(streams, variant):
    logprobs, reference, rows = streams
    logprobs.requires_grad_()
    preference_loss(logprobs, reference, rows, Dpo(variant=variant, nll_coef=0))[0].sum().backward()
    assert (logprobs.grad[rows % 2 == 0] < 0).all()
    assert (logprobs.grad[rows % 2 == 1] > 0).all()


def test_the_likelihood_term_moves_the_chosen_side_alone(streams):
    """Each chosen token by nll_coef over its row's length, whatever the contrast does."""
    logprobs, reference, rows = streams
    gradients = []
    for nll_coef in (0.0, 2.0):
        copy = logprobs.clone().requires_grad_()
        preference_loss(copy, reference, rows, Dpo(nll_coef=nll_coef))[0].sum().backward()
        gradients.append(copy.grad)
    expected = torch.where(rows % 2 == 0, -2.0 / rows.bincount()[rows], 0.0)
    torch.testing.assert_close(gradients[1] - gradients[0], expected, check_dtype=False)


def test_repeating_a_side_changes_the_sum_but_not_the_mean(streams):
    logprobs, reference, rows = streams
    twice = [torch.cat([stream, stream]) for stream in streams]
    for variant in ("ipo", "sigmoid_norm"):
        config = Dpo(variant=variant)
        torch.testing.assert_close(preference_loss(*twice, config)[0], preference_loss(logprobs, reference, rows, config)[0])
    assert not torch.allclose(preference_loss(*twice, Dpo())[0], preference_loss(logprobs, reference, rows, Dpo())[0])


@given(st.permutations(range(36)), st.sampled_from(VARIANTS))
def test_the_order_of_tokens_has_no_influence(order, variant):
    generator = torch.Generator().manual_seed(1)
    rows = torch.repeat_interleave(torch.arange(8), torch.arange(1, 9))
    logprobs, reference = -torch.rand(2, 36, generator=generator, dtype=torch.float64)
    one, _ = preference_loss(logprobs, reference, rows, Dpo(variant=variant))
    other, _ = preference_loss(logprobs[order], reference[order], rows[order], Dpo(variant=variant))
    torch.testing.assert_close(one, other, rtol=0, atol=1e-12)


def test_no_pair_at_all_gives_no_loss():
    loss, metrics = preference_loss(torch.empty(0), torch.empty(0), torch.empty(0, dtype=torch.int64), Dpo())
    assert (loss.numel(), metrics) == (0, {})
