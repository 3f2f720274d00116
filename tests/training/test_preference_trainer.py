"""The preference trainer: its loss compared with TRL's and known figures, and what does not influence it."""

import math
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from datasets import Dataset
from transformers import TrainingArguments
from trl import DPOConfig, DPOTrainer

from clawpipe.core.config.training import Dpo, Lora
from clawpipe.learn.training.checkpoint.files import Checkpoints
from clawpipe.learn.training.data.pairs import plan_pairs
from clawpipe.learn.training.data.samples import Sample
from clawpipe.learn.training.losses.batch import PairObjective
from clawpipe.learn.training.losses.preference import preference_loss
from clawpipe.learn.training.model.adapter import attach_trainable
from clawpipe.learn.training.trainers.base import PackDataset, PackedTrainer, Rhythm
from clawpipe.model.policy.tiny import byte_tokenizer

QUIET = {
    "use_cpu": True,
    "num_train_epochs": 1,
    "train_sampling_strategy": "sequential",
    "lr_scheduler_type": "constant",
    "optim": "adamw_torch",
    "logging_steps": 1,
    "logging_nan_inf_filter": False,
    "save_strategy": "no",
    "remove_unused_columns": False,
    "dataloader_pin_memory": False,
    "report_to": "none",
    "disable_tqdm": True,
}


@pytest.fixture
def fit(tmp_path):
    """fit(model, rows, plan, dpo, ...): train; the metrics of each update."""

    def run(model, rows, plan, dpo=Dpo(), learning_rate=1e-3, share=True):  # noqa: B008
        arguments = TrainingArguments(
            output_dir=str(tmp_path / "work"),
            per_device_train_batch_size=1,
            gradient_accumulation_steps=len(plan[0]),
            learning_rate=learning_rate,
            **QUIET,
        )
        checkpoints = Checkpoints(tmp_path / "checkpoints", {})
        objective = PairObjective(partial(preference_loss, config=dpo))
        trainer = PackedTrainer(model, arguments, PackDataset(rows, plan, share), checkpoints, Rhythm(), objective=objective)
        trainer.train()
        return [entry for entry in trainer.state.log_history if "loss" in entry]

    return run


def true_logprobs(model, ids, trained, temperature=1.0):
    with torch.no_grad():
        table = torch.log_softmax(model(input_ids=torch.tensor([list(ids)])).logits[0] / temperature, -1)
    return table[torch.as_tensor(trained) - 1, torch.as_tensor(ids)[trained]].numpy()


def make_row(model, ids, trained, group="g", temperature=1.0, weight=1.0):
    """A row whose reference is `model`."""
    streams = {"reference": true_logprobs(model, ids, trained, temperature)}
    return Sample(group, np.asarray(ids), np.asarray(trained), temperature, weight, streams)


@pytest.fixture
def multi_turn(tiny_llama):
    """multi_turn(model, ...): four pairs, two a group; a prompt of 6 tokens, then two turns around a tool's 3 tokens."""

    def make(model, temperature=1.0, weight=1.0):
        generator = np.random.default_rng(0)
        rows = []
        for pair in range(4):
            if pair % 2 == 0:
                prompt = generator.integers(0, 300, 6).tolist()
            for _ in SIDES:
                ids = prompt + generator.integers(0, 300, 9).tolist()
                rows.append(make_row(model, ids, [6, 7, 8, 12, 13], f"g{pair // 2}", temperature, weight))
        return rows

    return make


SIDES = ("chosen", "rejected")
ALL = [[list(range(8))]]


def shifted(rows, chosen, rejected):
    """The rows with a reference sum that lies below the policy's own by `chosen`, above it by `rejected`."""
    return [
        replace(row, streams={"reference": row.streams["reference"] + (rejected if index % 2 else -chosen) / len(row.trained)})
        for index, row in enumerate(rows)
    ]


def weights_of(model):
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters() if parameter.requires_grad])


def test_the_loss_of_a_known_margin_and_its_fall(fit, tiny_llama, multi_turn):
    """m = 0.1 * (0.3 + 0.4), the loss is ln(1 + e^-0.07) whatever the model; tool tokens are in no sum."""
    rows = shifted(multi_turn(tiny_llama()), 0.3, 0.4)
    steps = fit(tiny_llama(), rows, ALL * 20, Dpo(nll_coef=0), learning_rate=1e-2)
    assert steps[0]["loss"] == pytest.approx(0.658760, abs=2e-6)
    assert steps[0]["margin"] == pytest.approx(0.07, abs=2e-6)
    assert steps[0]["accuracy"] == 1
    assert steps[0]["trained_tokens"] == 8 * 5
    assert steps[-1]["loss"] < 0.1


def test_an_untrained_adapter_starts_at_ln_2_and_learns(fit, tiny_llama, multi_turn):
    rows = multi_turn(tiny_llama(), temperature=0.7)
    steps = fit(attach_trainable(tiny_llama(), Lora(rank=8)), rows, ALL * 20, Dpo(nll_coef=0), learning_rate=1e-2)
    assert steps[0]["loss"] == pytest.approx(math.log(2), abs=1e-6)
    assert steps[0]["margin"] == pytest.approx(0, abs=1e-6)
    assert steps[-1]["loss"] < 0.3
    assert steps[-1]["accuracy"] == 1


# One answer a prompt, as text of bytes, so that both trainers read the same tokens; sides differ in length.
TEXTS = [("ab ", "xyzzy", "q"), ("ab ", "xyzzy", "no"), ("cde ", "k", "lmnop"), ("f ", "uvw", "uvx")]


@pytest.fixture
def trl_step(tmp_path, tiny_llama, monkeypatch):
    """trl_step(dpo, loss_type, ...): the first update of TRL's own trainer on TEXTS, policy and reference being two models."""
    monkeypatch.setenv("CI", "1")  # TRL then sends no telemetry

    def run(dpo, loss_type, reference, loss_weights=None):
        arguments = DPOConfig(
            output_dir=str(tmp_path / "trl"),
            per_device_train_batch_size=1,  # the mean of its `sft` term is then one over each pair's own tokens
            gradient_accumulation_steps=len(TEXTS),
            learning_rate=1e-3,
            activation_checkpointing=False,
            bf16=False,
            max_length=None,
            beta=dpo.beta,
            loss_type=loss_type,
            loss_weights=loss_weights,
            **QUIET,
        )
        data = Dataset.from_dict(dict(zip(("prompt", *SIDES), map(list, zip(*TEXTS, strict=True)), strict=True)))
        trainer = DPOTrainer(tiny_llama(), reference, arguments, train_dataset=data, processing_class=byte_tokenizer())
        trainer.train()
        return trainer.state.log_history[0]

    return run


@pytest.fixture
def other_llama(tiny_llama):
    """A reference policy that differs from the policy."""
    model = tiny_llama()
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.02 * torch.randn(parameter.shape, generator=generator))
    return model


def text_rows(model):
    """TEXTS as recorded rows: an answer and its end marker are trained."""
    tokenizer, rows = byte_tokenizer(), []
    for prompt, *sides in TEXTS:
        start = len(tokenizer(prompt)["input_ids"])
        for side in sides:
            ids = [*tokenizer(prompt + side)["input_ids"], tokenizer.eos_token_id]
            rows.append(make_row(model, ids, range(start, len(ids)), prompt))
    return rows


@pytest.mark.parametrize("variant", ["sigmoid", "ipo", "sigmoid_norm"])
@pytest.mark.parametrize("nll_coef", [0.0, 0.7])
def test_an_update_is_that_of_trl(fit, trl_step, tiny_llama, other_llama, variant, nll_coef):
    rows, dpo = text_rows(other_llama), Dpo(variant=variant, nll_coef=nll_coef, beta=0.3)
    terms = {variant: 1.0, "sft": nll_coef} if nll_coef else {variant: 1.0}
    expected = trl_step(dpo, list(terms), other_llama, list(terms.values()))
    (step,) = fit(tiny_llama(), rows, plan_pairs(rows, 10_000, 1, seed=0), dpo)
    assert step["loss"] == pytest.approx(expected["loss"], rel=1e-5)
    assert step["grad_norm"] == pytest.approx(expected["grad_norm"], rel=1e-5)
    names = {"rewards_chosen": "rewards/chosen", "rewards_rejected": "rewards/rejected", "margin": "rewards/margins"}
    names |= {"accuracy": "rewards/accuracies", "lp_chosen": "logps/chosen", "lp_rejected": "logps/rejected"}
    for ours, theirs in names.items():
        assert step[ours] == pytest.approx(expected[theirs], rel=1e-4, abs=1e-6)


def test_order_packing_and_accumulation_have_no_influence(fit, tiny_llama, multi_turn):
    """One pack of four pairs, a pack a pair and an empty one, rows unshared, pairs backwards: one update, the same gradient."""
    plans = {
        "whole": (ALL, True),
        "apart": ([[[0, 1], [2, 3], [4, 5], [6, 7], []]], True),
        "uneven": ([[[4, 5], [6, 7, 0, 1, 2, 3]]], True),
        "unshared": (ALL, False),
    }
    results = {}
    for name, (plan, share) in plans.items():
        model = attach_trainable(tiny_llama(), Lora(rank=8))
        rows = shifted(multi_turn(tiny_llama()), 0.3, 0.4)
        (step,) = fit(model, rows, plan, learning_rate=1e-4, share=share)
        results[name] = step, weights_of(model)
    whole, weights = results.pop("whole")
    for step, others in results.values():
        assert step["loss"] == pytest.approx(whole["loss"], rel=1e-6)
        assert step["grad_norm"] == pytest.approx(whole["grad_norm"], rel=1e-6)
        for name in ("margin", "accuracy", "nll", "rewards_chosen", "lp_rejected", "entropy", "trained_tokens"):
            assert step[name] == pytest.approx(whole[name], rel=1e-5)
        assert (weights - others).abs().max() < 1e-4  # where a gradient is all but 0, Adam's first step shows its rounding


def test_tokens_of_tools_and_users_are_context_and_nothing_else(fit, tiny_llama, multi_turn):
    """A tool result changes the log-probs after it; tokens after the last trained one change nothing."""
    rows = multi_turn(tiny_llama())

    def loss(place):
        changed = [replace(row, token_ids=np.where(np.arange(15) == place, 299, row.token_ids)) for row in rows]
        return fit(tiny_llama(), changed, ALL)[0]["loss"]

    assert loss(14) == fit(tiny_llama(), rows, ALL)[0]["loss"]
    assert loss(10) != pytest.approx(loss(14), rel=1e-6)


def test_weights_scale_a_pair_and_leave_the_count(fit, tiny_llama, multi_turn):
    whole, half = (fit(tiny_llama(), multi_turn(tiny_llama(), weight=weight), ALL)[0]["loss"] for weight in (1.0, 0.5))
    assert half == pytest.approx(whole / 2, rel=1e-6)


def test_a_pair_with_a_broken_reference_costs_one_micro_batch(fit, tiny_llama, multi_turn):
    rows = multi_turn(tiny_llama())
    rows[1].streams["reference"][0] = math.nan
    model = attach_trainable(tiny_llama(), Lora(rank=8))
    (step,) = fit(model, rows, [[[0, 1], [2, 3], [4, 5], [6, 7]]])
    assert step["nonfinite"] == 1
    assert step["grad_norm"] > 0
    assert "margin" not in step  # absent rather than wrong
    assert torch.isfinite(weights_of(model)).all()


def test_the_likelihood_term_alone_raises_the_chosen_side(fit, tiny_llama, multi_turn):
    """With a tiny beta the contrast is constant."""
    rows, model = multi_turn(tiny_llama()), attach_trainable(tiny_llama(), Lora(rank=8))
    steps = fit(model, rows, ALL * 6, Dpo(beta=1e-9, nll_coef=1.0), learning_rate=1e-2)
    assert steps[0]["loss"] == pytest.approx(math.log(2) + steps[0]["nll"], rel=1e-6)
    assert steps[-1]["nll"] < steps[0]["nll"]
