"""The policy loss compared with formulas token by token, and properties that hold for any tokens."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from clawpipe.core.config.training import Loss
from clawpipe.errors import ConfigError
from clawpipe.learn.training.losses.policy import policy_loss

PLAIN = Loss(dual_clip=None)


def streams(seed=0, tokens=400, rows=8):
    """Log-probs of four policies, advantages, and row numbers, as they differ in a stale batch."""
    torch.manual_seed(seed)
    lp = -3 * torch.rand(tokens, dtype=torch.float64)
    noise = {name: scale * torch.randn(tokens, dtype=torch.float64) for name, scale in (("old", 0.5), ("prox", 0.3), ("ref", 0.2))}
    advantages = torch.randn(tokens, dtype=torch.float64)
    return lp, *(lp + part for part in noise.values()), advantages, torch.arange(tokens) // (tokens // rows)


def by_hand(token_loss, *columns):
    return torch.tensor(
        [token_loss(*row) for row in zip(*(column.tolist() for column in columns), strict=True)], dtype=torch.float64
    )


def clip(value, low, high):
    return min(max(value, low), high)


def ppo(ratio, advantage, low=0.2, high=0.28):
    return -min(ratio * advantage, clip(ratio, 1 - low, 1 + high) * advantage)


def row_means(values, rows):
    return torch.stack([values[rows == row].mean() for row in rows])


def close(actual, expected):
    torch.testing.assert_close(actual, expected, rtol=0, atol=1e-12)


def test_ppo_clips_asymmetrically():
    lp, old, _, _, advantages, rows = streams()
    loss, metrics = policy_loss(lp, old, advantages, rows, PLAIN)
    close(loss, by_hand(lambda x, o, a: ppo(math.exp(x - o), a), lp, old, advantages))
    outside = [(r > 1.28 and a > 0) or (r < 0.8 and a < 0) for r, a in zip((lp - old).exp(), advantages, strict=True)]
    assert float(metrics["clip_frac"]) == pytest.approx(sum(outside) / 400)
    assert float(metrics["ratio_mean"]) == pytest.approx(float((lp - old).exp().mean()))
    assert float(metrics["ratio_min"]) == pytest.approx(float((lp - old).min().exp()))
    assert float(metrics["ratio_max"]) == pytest.approx(float((lp - old).max().exp()))
    kl = sum(math.exp(x - o) - 1 - (x - o) for x, o in zip(lp.tolist(), old.tolist(), strict=True)) / 400
    assert float(metrics["approx_kl"]) == pytest.approx(kl)


def test_dual_clip_bounds_the_loss_of_bad_tokens():
    lp, old, _, _, advantages, rows = streams()
    old = old - 1  # ratios around e
    loss, _ = policy_loss(lp, old, advantages, rows, Loss(dual_clip=3.0))

    def dual(x, o, a):
        plain = ppo(math.exp(x - o), a)
        return min(plain, -3 * a) if a < 0 else plain

    close(loss, by_hand(dual, lp, old, advantages))
    assert (loss < by_hand(lambda x, o, a: ppo(math.exp(x - o), a), lp, old, advantages)).any()


def test_cispo_truncates_the_weight_and_keeps_every_gradient():
    lp, old, _, _, advantages, rows = streams()
    lp.requires_grad_()
    loss, _ = policy_loss(lp, old, advantages, rows, Loss(objective="cispo"))
    close(loss.detach(), by_hand(lambda x, o, a: -min(math.exp(x - o), 1.28) * a * x, lp, old, advantages))
    loss.sum().backward()
    close(lp.grad, by_hand(lambda x, o, a: -min(math.exp(x - o), 1.28) * a, lp, old, advantages))


def test_reinforce_weighs_by_a_ratio_without_gradient():
    lp, old, _, _, advantages, rows = streams()
    lp.requires_grad_()
    loss, _ = policy_loss(lp, old, advantages, rows, Loss(objective="reinforce"))
    close(loss.detach(), by_hand(lambda x, o, a: -math.exp(x - o) * a * x, lp, old, advantages))
    loss.sum().backward()
    close(lp.grad, by_hand(lambda x, o, a: -math.exp(x - o) * a, lp, old, advantages))


def test_sft_is_likelihood_of_good_tokens_and_needs_no_behaviour():
    lp, old, _, _, advantages, rows = streams()
    loss, metrics = policy_loss(lp, torch.full_like(old, torch.nan), advantages, rows, Loss(objective="sft"))
    close(loss, by_hand(lambda x, a: -x if a > 0 else 0.0, lp, advantages))
    assert not any(name.startswith("ratio") for name in metrics)


def test_sequence_level_ratio_is_the_geometric_mean_of_a_row():
    lp, old, _, _, advantages, rows = streams()
    loss, _ = policy_loss(lp, old, advantages, rows, Loss(dual_clip=None, level="sequence"))
    close(loss, by_hand(lambda d, a: ppo(math.exp(d), a), row_means(lp - old, rows), advantages))


def test_a_proximal_policy_anchors_the_ratio_without_weights():
    lp, old, prox, _, advantages, rows = streams()
    loss, _ = policy_loss(lp, old, advantages, rows, PLAIN, proximal=prox)
    close(loss, by_hand(lambda x, p, a: ppo(math.exp(x - p), a), lp, prox, advantages))


def test_truncated_importance_sampling():
    lp, old, prox, _, advantages, rows = streams()
    loss, _ = policy_loss(lp, old, advantages, rows, Loss(dual_clip=None, tis_cap=2.0), proximal=prox)
    close(loss, by_hand(lambda x, o, p, a: ppo(math.exp(x - p), a) * min(math.exp(p - o), 2), lp, old, prox, advantages))


def test_icepop_masks_tokens_outside_of_its_band():
    lp, old, prox, _, advantages, rows = streams()
    config = Loss(dual_clip=None, icepop=(0.5, 2.0))
    loss, metrics = policy_loss(lp, old, advantages, rows, config, proximal=prox)

    def icepop(x, o, p, a):
        mismatch = math.exp(p - o)
        return ppo(math.exp(x - p), a) * mismatch if 0.5 <= mismatch <= 2 else 0.0

    close(loss, by_hand(icepop, lp, old, prox, advantages))
    outside = ((prox - old).abs() > math.log(2)).double().mean()
    assert float(metrics["icepop_frac"]) == pytest.approx(float(outside))
    assert 0 < float(outside) < 1


def test_stale_rows_lose_their_negative_tokens():
    lp, old, _, _, advantages, rows = streams()
    loss, metrics = policy_loss(lp, old, advantages, rows, Loss(dual_clip=None, opsm_delta=0.0))
    drift = row_means(old - lp, rows)
    plain = by_hand(lambda x, o, a: ppo(math.exp(x - o), a), lp, old, advantages)
    stale = (drift > 0) & (advantages < 0)
    close(loss, torch.where(stale, 0.0, plain))
    assert float(metrics["opsm_drop"]) == pytest.approx(float(stale.double().mean()))


def test_kl_is_neither_weighted_nor_masked():
    lp, old, prox, ref, advantages, rows = streams()
    config = Loss(dual_clip=None, icepop=(0.5, 2.0), opsm_delta=0.0)
    without, _ = policy_loss(lp, old, advantages, rows, config, proximal=prox)
    loss, metrics = policy_loss(lp, old, advantages, rows, config.model_copy(update={"kl_coef": 0.1}), proximal=prox, reference=ref)
    divergence = by_hand(lambda x, r: math.exp(r - x) - (r - x) - 1, lp, ref)
    close(loss, without + 0.1 * divergence)
    assert float(metrics["kl"]) == pytest.approx(float(divergence.mean()))


def test_a_shift_of_all_log_probs_has_a_closed_form():
    lp = torch.tensor([-1.0, -2.0, -3.0, -4.0])
    _, metrics = policy_loss(lp, lp - 0.1, torch.tensor([1.0, -1.0, 1.0, -1.0]), torch.tensor([0, 0, 1, 1]), PLAIN)
    assert float(metrics["ratio_mean"]) == pytest.approx(1.1052, abs=1e-4)
    assert float(metrics["approx_kl"]) == pytest.approx(0.0052, abs=1e-4)
    assert float(metrics["clip_frac"]) == 0


def test_extreme_log_ratios_stay_finite():
    lp = torch.tensor([0.0, -1000.0], requires_grad=True)
    loss, _ = policy_loss(lp, torch.tensor([-1000.0, 0.0]), torch.tensor([-1.0, -1.0]), torch.tensor([0, 1]), PLAIN)
    loss.sum().backward()
    assert torch.isfinite(loss).all()
    assert torch.isfinite(lp.grad).all()


def test_no_tokens_give_no_loss_and_no_metrics():
    lp = torch.empty(0, requires_grad=True)
    loss, metrics = policy_loss(lp, lp.detach(), lp.detach(), torch.empty(0, dtype=torch.long), PLAIN)
    loss.sum().backward()
    assert metrics == {}


@pytest.mark.parametrize("term", [{"kl_coef": 0.1}, {"tis_cap": 2.0}, {"icepop": (0.5, 2.0)}])
def test_a_term_without_its_input_is_an_error(term):
    lp, old, _, _, advantages, rows = streams()
    with pytest.raises(ConfigError, match=next(iter(term))):
        policy_loss(lp, old, advantages, rows, Loss(**term))


TERMS = {
    "ppo": Loss(),
    "gspo": Loss(level="sequence"),
    "cispo": Loss(objective="cispo"),
    "reinforce": Loss(objective="reinforce"),
    "sft": Loss(objective="sft"),
    "all": Loss(icepop=(0.5, 2.0), opsm_delta=0.05, kl_coef=0.1),
}
ANY_TERM = st.sampled_from(sorted(TERMS))


@settings(max_examples=40, deadline=None)
@given(ANY_TERM, st.integers(0, 10_000), st.randoms(use_true_random=False))
def test_order_of_tokens_does_not_matter(term, seed, random):
    lp, old, prox, ref, advantages, rows = streams(seed, tokens=24, rows=4)
    extra = {"proximal": prox, "reference": ref} if term == "all" else {}
    loss, _ = policy_loss(lp, old, advantages, rows, TERMS[term], **extra)
    order = torch.tensor(random.sample(range(24), 24))
    shuffled = {name: values[order] for name, values in extra.items()}
    renamed = 100 - 7 * rows[order]  # numbers of rows are names, not positions
    permuted, _ = policy_loss(lp[order], old[order], advantages[order], renamed, TERMS[term], **shuffled)
    close(permuted, loss[order])


@settings(max_examples=40, deadline=None)
@given(ANY_TERM, st.integers(0, 10_000))
def test_zero_advantage_has_no_gradient_and_rows_do_not_mix(term, seed):
    lp, old, prox, _, advantages, rows = streams(seed, tokens=24, rows=4)
    advantages[rows == 2] = 0
    lp.requires_grad_()
    config = TERMS[term].model_copy(update={"kl_coef": 0.0})
    loss, _ = policy_loss(lp, old, advantages, rows, config, proximal=prox if config.icepop else None)
    loss.sum().backward()
    assert (lp.grad[rows == 2] == 0).all()
    alone, _ = policy_loss(
        *(values[rows == 1] for values in (lp, old, advantages, rows)), config, proximal=prox[rows == 1] if config.icepop else None
    )
    close(alone, loss[rows == 1])


@pytest.mark.parametrize("objective", ["ppo", "cispo", "reinforce", "sft"])
@pytest.mark.parametrize("level", ["token", "sequence"])
def test_a_step_down_the_loss_makes_good_tokens_likelier(objective, level):
    lp = torch.tensor([-1.0, -1.0, -2.0, -2.0], requires_grad=True)
    advantages = torch.tensor([1.0, 1.0, -1.0, -1.0])
    loss, _ = policy_loss(lp, lp.detach() + 0.01, advantages, torch.tensor([0, 0, 1, 1]), Loss(objective=objective, level=level))
    loss.sum().backward()
    assert (lp.grad[:2] < 0).all()
    assert (lp.grad[2:] == 0).all() if objective == "sft" else (lp.grad[2:] > 0).all()


def test_the_kl_term_alone_pulls_towards_the_reference():
    lp = torch.tensor([-1.0, -2.0], requires_grad=True)
    reference = torch.tensor([-0.5, -2.5])
    loss, _ = policy_loss(lp, lp.detach(), torch.zeros(2), torch.tensor([0, 1]), Loss(kl_coef=1.0), reference=reference)
    loss.sum().backward()
    assert lp.grad[0] < 0 < lp.grad[1]
