"""Losses compared with TRL's code on the same tokens: padded tables there, flat streams here."""

from collections import defaultdict
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from trl import GRPOTrainer
from trl.experimental.sdpo.loss_utils import compute_sampled_token_self_distillation_loss, compute_topk_self_distillation_loss

from clawpipe.core.config.training import Loss
from clawpipe.learn.training.losses.policy import policy_loss, topk_divergence

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning", "ignore::UserWarning")

LENGTHS = [7, 3, 12, 1, 9, 5]
PLAIN = {"dual_clip": None}


@pytest.fixture
def tables():
    """Log-probs of four policies and advantages as [B, T], and which tokens count: ragged rows with a gap for a tool's words."""
    generator = torch.Generator().manual_seed(0)

    def draw(scale):
        return scale * torch.randn(len(LENGTHS), max(LENGTHS), generator=generator, dtype=torch.float64)

    current = -3 * torch.rand(len(LENGTHS), max(LENGTHS), generator=generator, dtype=torch.float64)
    mask = torch.arange(max(LENGTHS)) < torch.tensor(LENGTHS)[:, None]
    mask[:, 4] &= torch.tensor(LENGTHS) == 5  # the tool
    return {"current": current, "old": current + draw(0.5), "ref": current + draw(0.2), "advantages": draw(1.0), "mask": mask}


def theirs(tables, loss_type, level="token", low=0.2, high=0.28, delta=None, beta=0.0, threshold=None, entropy_coef=0.0):
    """Loss and gradient by GRPOTrainer._compute_loss, which reads its settings from the trainer and nothing from a model here."""
    current, mask = tables["current"].clone().requires_grad_(), tables["mask"].double()
    entropies = current.square()  # any function of the policy will do
    trainer = SimpleNamespace(
        _get_per_token_logps_and_entropies=lambda *a, **k: (current, entropies, None),
        aux_loss_enabled=False,
        top_entropy_quantile=1.0,
        off_policy_mask_threshold=threshold,
        get_off_policy_mask=GRPOTrainer.get_off_policy_mask,
        importance_sampling_level=level,
        beta=beta,
        loss_type=loss_type,
        epsilon_low=low,
        epsilon_high=high,
        use_vllm=False,
        args=SimpleNamespace(delta=delta, use_bias_correction_kl=False, steps_per_generation=1),
        model=SimpleNamespace(training=True),
        current_gradient_accumulation_steps=1,
        max_completion_length=20,
        accelerator=SimpleNamespace(
            num_processes=1, gather=lambda value: value, reduce=lambda value, reduction: value, sync_gradients=False
        ),
        _entropy_bonus_enabled=entropy_coef != 0.0,
        entropy_coef=entropy_coef,
        use_adaptive_entropy=False,
        _metrics={"train": defaultdict(list)},
    )
    inputs = {
        "prompt_ids": torch.zeros(len(LENGTHS), 1, dtype=torch.long),
        "prompt_mask": torch.ones(len(LENGTHS), 1),
        "completion_ids": torch.zeros(len(LENGTHS), max(LENGTHS), dtype=torch.long),
        "completion_mask": torch.ones_like(mask),
        "tool_mask": mask,
        "advantages": tables["advantages"],
        "old_per_token_logps": tables["old"],
        "ref_per_token_logps": tables["ref"],
        "num_items_in_batch": mask.sum(),
    }
    loss = GRPOTrainer._compute_loss(trainer, None, inputs)
    loss.backward()
    return loss.detach(), current.grad


def ours(tables, config, normalise="token"):
    current, mask = tables["current"].clone().requires_grad_(), tables["mask"]
    rows = torch.arange(len(LENGTHS))[:, None].expand_as(mask)[mask]
    streams = (tables[name][mask] for name in ("old", "advantages"))
    entropy = current.square()[mask]
    per_token, _ = policy_loss(current[mask], *streams, rows, config, reference=tables["ref"][mask], entropy=entropy)
    share = {"token": mask.sum(), "sequence": mask.sum(-1)[rows] * len(LENGTHS), "constant": 20 * len(LENGTHS)}[normalise]
    loss = (per_token / share).sum()
    loss.backward()
    return loss.detach(), current.grad


CASES = {
    "ppo": ({}, {}),
    "dual clip": ({"delta": 1.5}, {"dual_clip": 1.5}),
    "gspo": ({"level": "sequence"}, {"level": "sequence"}),
    "kl": ({"beta": 0.1}, {"kl_coef": 0.1}),
    "stale rows": ({"threshold": 0.05}, {"opsm_delta": 0.05}),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize(("loss_type", "normalise"), [("dapo", "token"), ("grpo", "sequence"), ("dr_grpo", "constant")])
def test_clipped_losses_and_gradients_in_each_normalisation(tables, case, loss_type, normalise):
    for_them, for_us = CASES[case]
    expected = theirs(tables, loss_type, **for_them)
    for mine, other in zip(ours(tables, Loss(**PLAIN | for_us), normalise), expected, strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-12, atol=1e-12)


def test_an_entropy_bonus(tables):
    """TRL's is a mean over tokens for every normalisation; ours is normalised like the loss."""
    expected = theirs(tables, "dapo", entropy_coef=0.05)
    for mine, other in zip(ours(tables, Loss(**PLAIN, entropy_coef=0.05)), expected, strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-12, atol=1e-12)


def test_cispo(tables):
    expected = theirs(tables, "cispo", high=1.28)  # there the bound itself, here what it is above 1
    for mine, other in zip(ours(tables, Loss(objective="cispo", clip_high=0.28)), expected, strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-12, atol=1e-12)


def test_topk_divergence_and_its_gradient_in_the_logits():
    generator = torch.Generator().manual_seed(1)
    student, teacher = (torch.randn(9, 40, generator=generator, dtype=torch.float64) for _ in range(2))
    twin = student.clone().requires_grad_()
    student.requires_grad_()
    expected = compute_topk_self_distillation_loss(
        twin, teacher, distillation_topk=5, distillation_alpha=1.0, distillation_add_tail=True
    )
    top = student.topk(5).indices
    mine = topk_divergence(*(torch.log_softmax(logits, -1).gather(-1, top) for logits in (student, teacher)))
    torch.testing.assert_close(mine, expected, rtol=1e-10, atol=1e-12)
    mine.sum().backward()
    expected.sum().backward()
    torch.testing.assert_close(student.grad, twin.grad, rtol=1e-8, atol=1e-10)


def test_token_distillation_has_the_sampled_token_gradient():
    generator = torch.Generator().manual_seed(2)
    student, teacher = (torch.randn(6, 30, generator=generator, dtype=torch.float64) for _ in range(2))
    tokens = torch.randint(0, 30, (6,), generator=generator)
    twin = student.clone().requires_grad_()
    student.requires_grad_()
    compute_sampled_token_self_distillation_loss(twin, teacher, tokens, distillation_alpha=1.0).sum().backward()
    logprobs, opinion = (torch.log_softmax(logits, -1)[torch.arange(6), tokens] for logits in (student, teacher))
    behaviour = logprobs.detach()
    loss, _ = policy_loss(logprobs, behaviour, opinion - behaviour, torch.arange(6), Loss(objective="reinforce"))
    loss.sum().backward()
    torch.testing.assert_close(student.grad, twin.grad, rtol=1e-10, atol=1e-12)


def test_group_advantages_give_the_reported_loss():
    """Rewards 0 1 0 1 with the sample deviation are +-0.86588; every token recorded 0.5 too low, half of them clipped."""
    advantage = 0.5 / (np.std([0, 1, 0, 1], ddof=1) + 1e-4)
    lp = torch.full((8,), -2.0)
    loss, _ = policy_loss(
        lp, lp - 0.5, torch.tensor([-advantage, advantage] * 4), torch.arange(8), Loss(clip_high=0.2, dual_clip=None)
    )
    assert float(loss.mean()) == pytest.approx(0.19427, abs=1e-5)
