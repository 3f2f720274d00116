"""The training loop: its actual loss, its normalisation and its guards."""

import math

import numpy as np
import pytest
import torch

from clawpipe.core.config.training import Lora, Loss
from clawpipe.errors import TrainingError
from clawpipe.learn.training.data.packing import build_pack
from clawpipe.learn.training.model.adapter import attach_trainable
from clawpipe.learn.training.model.scoring_head import install_scoring_head, learn_entropy, score_pack
from clawpipe.learn.training.trainers.policy import require_applied_ratios


def true_logprobs(model, sample):
    with torch.no_grad():
        logits = model(input_ids=torch.from_numpy(sample.token_ids)[None]).logits[0]
    table = torch.log_softmax(logits, -1)
    return table[torch.from_numpy(sample.trained - 1), torch.from_numpy(sample.token_ids[sample.trained])].numpy()


@pytest.fixture
def stored(tiny_llama, make_sample):
    """Two prompts x four completions of 13 policy tokens around a tool result, rewards 0 1 0 1, recorded 0.5 too low."""
    generator = np.random.default_rng(0)
    model, samples = tiny_llama(), []
    advantage = 0.5 / (0.5 + 1e-4)  # (reward - mean) / (population std + 1e-4)
    for group in range(2):
        prompt = generator.integers(0, 300, 6).tolist()
        for rollout in range(4):
            ids = prompt + generator.integers(0, 300, 18).tolist()
            trained = [*range(6, 13), *range(18, 24)]
            sample = make_sample(ids, trained, advantage=advantage if rollout % 2 else -advantage, group=str(group))
            sample.streams["behaviour"][:] = true_logprobs(model, sample) - 0.5
            samples.append(sample)
    return samples


def test_recorded_log_probs_are_applied(fit, tiny_llama, stored):
    """Every ratio is e^0.5; half of the tokens are clipped: the loss is A(e^0.5 - 1.2)/2 whatever the model."""
    loss = Loss(clip_low=0.2, clip_high=0.2, dual_clip=None)
    (step,) = fit(attach_trainable(tiny_llama(), Lora(rank=8)), stored, [[list(range(8))]], loss)
    assert step["loss"] == pytest.approx(0.99980 * (math.exp(0.5) - 1.2) / 2, abs=2e-5)
    assert step["loss"] == pytest.approx(0.22432, abs=2e-5)
    assert step["ratio_mean"] == pytest.approx(math.exp(0.5), abs=1e-4)
    assert step["ratio_min"] == pytest.approx(step["ratio_max"], abs=1e-4)
    assert step["clip_frac"] == 0.5
    assert step["approx_kl"] == pytest.approx(math.exp(0.5) - 1.5, abs=1e-4)
    assert step["trained_tokens"] == 8 * 13


def test_accumulation_does_not_change_the_update(fit, tiny_llama, stored):
    """One pack of eight rows, or packs of two, three, three and none: one update, the same gradient."""
    results = []
    for plan in ([[[*range(8)]]], [[[0, 1], [2, 3, 4], [5, 6, 7], []]]):
        model = attach_trainable(tiny_llama(), Lora(rank=8))
        (step,) = fit(model, stored, plan, learning_rate=1e-4)
        weights = torch.cat([parameter.detach().flatten() for parameter in model.parameters() if parameter.requires_grad])
        results.append((step, weights))
    (whole, one), (parts, four) = results
    assert parts["loss"] == pytest.approx(whole["loss"], rel=1e-6)
    assert parts["grad_norm"] == pytest.approx(whole["grad_norm"], rel=1e-6)
    for name in ("ratio_mean", "ratio_min", "ratio_max", "approx_kl", "entropy", "lp", "trained_tokens"):
        assert parts[name] == pytest.approx(whole[name], rel=1e-5)
    assert (one - four).abs().max() < 1e-4  # where a gradient is all but 0, Adam's first step shows its rounding


NORMALISED = [Loss(), Loss(normalise="sequence"), Loss(normalise="constant", normaliser=50)]


@pytest.mark.parametrize("loss", NORMALISED, ids=lambda loss: loss.normalise)
def test_accumulation_order_and_sharing_keep_the_step(fit, tiny_llama, make_sample, loss):
    generator = np.random.default_rng(5)
    samples = [
        make_sample([1, 2, *generator.integers(0, 300, 4 + row)], range(2, 5 + row), -5.7, generator.normal(), weight=1 + row / 9)
        for row in range(6)
    ]
    plans = {"one": [[[*range(6)]]], "parts": [[[0, 1, 2], [3], [4, 5], []]], "order": [[[5, 3, 1, 0, 2, 4]]]}
    steps = {name: fit(tiny_llama(), samples, plan, loss)[0] for name, plan in plans.items()}
    (steps["whole"],) = fit(tiny_llama(), samples, plans["parts"], loss, share=False)
    for step in steps.values():
        assert step["loss"] == pytest.approx(steps["one"]["loss"], rel=1e-5)
        assert step["grad_norm"] == pytest.approx(steps["one"]["grad_norm"], rel=1e-5)


def test_each_normalisation_is_the_mean_that_it_says(fit, tiny_llama, make_sample):
    """Rows of 1 and 3 tokens; with REINFORCE and ratios near 1 a row's sum is what its tokens' losses add up to."""
    samples = [make_sample([1, 2, 3], [2], -5.7, 1.0), make_sample([1, 4, 5, 6], [1, 2, 3], -5.7, -2.0)]
    sums = [fit(tiny_llama(), [sample], [[[0]]], Loss(normalise="constant", normaliser=1))[0]["loss"] for sample in samples]
    means = {loss.normalise: fit(tiny_llama(), samples, [[[0, 1]]], loss)[0]["loss"] for loss in NORMALISED}
    assert means["token"] == pytest.approx(sum(sums) / 4, rel=1e-5)
    assert means["sequence"] == pytest.approx((sums[0] + sums[1] / 3) / 2, rel=1e-5)
    assert means["constant"] == pytest.approx(sum(sums) / (2 * 50), rel=1e-5)


def test_tempered_rows_are_scored_at_their_own_temperature(fit, tiny_llama, make_sample):
    """Recorded under the untouched model at 0.6 and at 1.3: no ratio differs from 1, at another temperature all would."""
    samples = []
    for temperature in (0.6, 1.3):
        sample = make_sample([1, 2, 3, 4], [2, 3], temperature=temperature)
        table = torch.log_softmax(tiny_llama()(input_ids=torch.tensor([[1, 2, 3, 4]])).logits[0] / temperature, -1)
        sample.streams["behaviour"][:] = table[[1, 2], [3, 4]].detach().numpy()
        samples.append(sample)
    (step,) = fit(tiny_llama(), samples, [[[0, 1]]])
    assert step["ratio_min"] == pytest.approx(1, abs=1e-5)
    assert step["ratio_max"] == pytest.approx(1, abs=1e-5)


def test_each_term_alone_moves_the_weights_its_way(fit, tiny_llama, stored):
    """The reference alone: with every advantage 0 the policy moves towards the reference."""
    for index, sample in enumerate(stored):
        lp = true_logprobs(tiny_llama(), sample)
        sample.streams["advantages"][:] = 0
        sample.streams["reference"] = lp + (1.0 if index % 2 else -1.0)
    model = tiny_llama()
    before = [true_logprobs(model, sample).mean() for sample in stored]
    steps = fit(model, stored, [[[*range(8)]]] * 5, Loss(kl_coef=1.0), learning_rate=1e-3)
    gain = [true_logprobs(model, sample).mean() - old for sample, old in zip(stored, before, strict=True)]
    assert min(gain[1::2]) > 0 > max(gain[0::2])
    assert steps[-1]["kl"] < steps[0]["kl"]


def test_the_entropys_gradient_is_that_of_the_whole_softmax(tiny_llama, make_sample):
    """At the row's own temperature, over the whole vocabulary; without a bonus there is none."""
    sample = make_sample([1, 2, 3, 4, 5], [2, 4], temperature=0.7)
    model, twin = tiny_llama(), tiny_llama()
    install_scoring_head(model)
    pack = build_pack([sample])
    assert not score_pack(model, pack).entropy.requires_grad
    learn_entropy(model)
    entropy = score_pack(model, pack).entropy
    table = torch.log_softmax(twin(input_ids=torch.from_numpy(sample.token_ids)[None]).logits[0, [1, 3]] / 0.7, -1)
    expected = -(table.exp() * table).sum(-1)
    torch.testing.assert_close(entropy, expected, rtol=1e-5, atol=1e-5)
    entropy.sum().backward()
    expected.sum().backward()
    for mine, other in zip(model.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(mine.grad, other.grad, rtol=1e-3, atol=1e-6)


def test_an_entropy_bonus_alone_raises_the_entropy(fit, tiny_llama, stored):
    for sample in stored:
        sample.streams["advantages"][:] = 0
    still = fit(tiny_llama(), stored, [[[*range(8)]]] * 4)
    steps = fit(tiny_llama(), stored, [[[*range(8)]]] * 4, Loss(entropy_coef=0.5), learning_rate=1e-3)
    assert steps[0]["loss"] == pytest.approx(-0.5 * steps[0]["entropy"], rel=1e-5)
    assert still[-1]["entropy"] == still[0]["entropy"]
    assert steps[-1]["entropy"] > steps[0]["entropy"]


def test_proximal_log_probs_weigh_the_loss(fit, tiny_llama, stored):
    """The proximal policy is the untouched model, so ratios are 1 and each token is weighed by e^0.5, capped at 1.5."""
    for sample in stored:
        sample.streams["proximal"] = true_logprobs(tiny_llama(), sample)
        sample.streams["advantages"][:] = 1.0
    (step,) = fit(tiny_llama(), stored, [[[*range(8)]]], Loss(tis_cap=1.5))
    assert step["loss"] == pytest.approx(-1.5, abs=1e-4)
    assert step["tis_frac"] == 1
    assert step["ratio_mean"] == pytest.approx(1, abs=1e-4)


def test_two_full_model_steps_match_another_trainer(fit, tiny_llama, make_sample):
    """Values measured with an unpacked trainer on padded rows; row i is range(10i+3, 10i+11+i), its first 4 tokens given."""
    sizes = {"vocab_size": 49152, "pad_token_id": 2, "eos_token_id": 2, "bos_token_id": 1}
    samples = [
        make_sample(range(10 * i + 3, 10 * i + 11 + i), range(4, 8 + i), -10.8, 1.0 if i % 2 else -1.0, group=str(i))
        for i in range(8)
    ]
    model = tiny_llama(**sizes)
    first, second = fit(model, samples, [[[*range(8)]], [[*range(8)]]])
    assert first["loss"] == pytest.approx(-0.0421734, abs=2e-7)
    assert first["grad_norm"] == pytest.approx(1.8435473, rel=1e-6)
    assert second["loss"] == pytest.approx(-0.2262419, abs=2e-7)
    assert second["grad_norm"] == pytest.approx(1.3003731, rel=1e-6)
    total = sum(parameter.detach().double().sum() for parameter in model.parameters())
    assert float(total) == pytest.approx(-1119.3421037, abs=2e-2)


def test_metrics_report_the_losses_parts_and_advantage_deviation(fit, tiny_llama, stored):
    """Over packs of unequal size: numpy's deviation over all trained tokens, and a total that its parts add up to."""
    for index, sample in enumerate(stored):
        sample.streams["advantages"][:] = np.linspace(-1, 2, 13) * index
        sample.streams["reference"] = true_logprobs(tiny_llama(), sample) - 0.3
    (step,) = fit(tiny_llama(), stored, [[[0], [1, 2, 3], [4, 5, 6, 7]]], Loss(kl_coef=0.2, entropy_coef=0.1))
    advantages = np.concatenate([sample.streams["advantages"] for sample in stored]).astype(float)
    assert step["adv_std"] == pytest.approx(advantages.std(), rel=1e-6)
    assert step["adv_mean"] == pytest.approx(advantages.mean(), rel=1e-6)
    assert step["loss"] == pytest.approx(step["policy_loss"] + 0.2 * step["kl"] - 0.1 * step["entropy"], rel=1e-5)
    assert abs(step["policy_loss"]) > 0.01


def test_equal_advantages_have_no_deviation_and_no_policy_loss(fit, tiny_llama, stored):
    for sample in stored:
        sample.streams["advantages"][:] = 0.7
    (step,) = fit(tiny_llama(), stored, [[[*range(8)]]])
    assert step["adv_std"] == pytest.approx(0, abs=1e-6)
    assert "policy_loss" in step
    for sample in stored:
        sample.streams["advantages"][:] = 0
    (step,) = fit(tiny_llama(), stored, [[[*range(8)]]])
    assert "policy_loss" not in step


def test_weights_scale_a_row(fit, tiny_llama, make_sample):
    """Half the weight is half the advantage where nothing is clipped: both scale a row's loss and leave the token count."""

    def loss(**row):
        samples = [make_sample([1, 2, 3, 4], [2, 3], -5.7, **row), make_sample([1, 2, 5, 6], [2, 3], -5.7, -1.0)]
        (step,) = fit(tiny_llama(), samples, [[[0, 1]]], Loss(objective="reinforce"))
        return step["loss"]

    assert loss(weight=0.5) == pytest.approx(loss(advantage=0.5), rel=1e-6)
    assert loss(weight=0.5) != pytest.approx(loss(), rel=1e-3)


def test_training_moves_probability_to_good_rollouts(fit, tiny_llama, stored):
    model = attach_trainable(tiny_llama(), Lora(rank=8))
    before = [true_logprobs(model, sample).mean() for sample in stored]
    fit(model, stored, [[[*range(8)]]] * 4, Loss(objective="reinforce"), learning_rate=3e-3)
    gain = [true_logprobs(model, sample).mean() - old for sample, old in zip(stored, before, strict=True)]
    assert min(gain[1::2]) > max(gain[0::2])


def test_a_loss_that_is_not_finite_costs_its_micro_batch_only(fit, tiny_llama, stored):
    stored[0].streams["behaviour"][3] = math.nan
    model = attach_trainable(tiny_llama(), Lora(rank=8))
    (step,) = fit(model, stored, [[[0, 1], [2, 3], [4, 5], [6, 7]]])
    assert step["nonfinite"] == 1
    assert step["grad_norm"] > 0
    assert "ratio_mean" not in step  # absent rather than wrong
    assert step["entropy"] > 0
    assert all(torch.isfinite(parameter).all() for parameter in model.parameters())


def test_an_update_with_a_broken_gradient_is_not_made(fit, tiny_llama, stored):
    model = attach_trainable(tiny_llama(), Lora(rank=8))
    _, broken = next((name, parameter) for name, parameter in model.named_parameters() if "lora_B" in name)
    broken.register_hook(lambda gradient: gradient * math.inf)
    before = {name: parameter.detach().clone() for name, parameter in model.named_parameters() if parameter.requires_grad}
    (step,) = fit(model, stored, [[[*range(8)]]])
    assert step["nonfinite"] == 1
    assert "grad_norm" not in step
    assert all(torch.equal(parameter, before[name]) for name, parameter in model.named_parameters() if name in before)


def test_too_many_broken_updates_in_a_row_end_the_run(fit, tiny_llama, stored):
    for sample in stored:
        sample.streams["behaviour"][0] = math.nan
    with pytest.raises(TrainingError, match="3 optimizer steps in a row"):
        fit(attach_trainable(tiny_llama(), Lora(rank=8)), stored, [[[*range(8)]]] * 4)


def test_ignored_log_probs_fail_a_run():
    ignored = {"ratio_min": 1.0, "ratio_max": 1.0, "approx_kl": 0.0}
    with pytest.raises(TrainingError, match="recorded log-probs were ignored"):
        require_applied_ratios([ignored, ignored])
    require_applied_ratios([ignored, ignored | {"ratio_max": 1.0000001}])
