"""The load-balancing loss of a mixture of experts beside transformers' own, and what becomes of it in a step."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from transformers import AutoModelForCausalLM, MixtralConfig, OlmoeConfig, Qwen3MoeConfig
from transformers.models.mixtral.modeling_mixtral import load_balancing_loss_func

from clawpipe.core.config.training import Lora
from clawpipe.learn.training.losses.batch import Part
from clawpipe.learn.training.model.adapter import attach_trainable
from clawpipe.learn.training.model.router import balance_coefficient
from clawpipe.learn.training.model.scoring_head import install_scoring_head, score_pack
from clawpipe.learn.training.model.tree_attention import use_packs
from clawpipe.learn.training.trainers.accumulator import Accumulator
from clawpipe.learn.training.trainers.base import PackedTrainer

SIZES = {
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "num_experts_per_tok": 2,
    "router_aux_loss_coef": 0.25,
}
KINDS = {
    MixtralConfig: {"num_local_experts": 4},
    Qwen3MoeConfig: {"num_experts": 4, "moe_intermediate_size": 16, "head_dim": 16},
    OlmoeConfig: {"num_experts": 4},
}
CPU = torch.device("cpu")


def experts(kind, asked=True):
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(kind(**SIZES, **KINDS[kind], output_router_logits=asked)).eval()
    use_packs(model, CPU)
    install_scoring_head(model)
    return model


def pack(ids, ends=None):
    size = len(ids)
    return {
        "input_ids": torch.tensor([ids]),
        "position_ids": torch.arange(size)[None],
        "ends": torch.full((size,), size) if ends is None else torch.tensor(ends),
        "score_index": torch.arange(size - 1),
        "targets": torch.tensor(ids[1:]),
        "temperatures": torch.ones(size - 1),
        "score": torch.arange(size - 1),
    }


ROW = pack([5, 9, 33, 2, 60, 7, 7, 1])


@pytest.mark.parametrize("recomputed", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_loss_and_gradient_are_transformers_own(kind, recomputed):
    model = experts(kind).train()
    if recomputed:
        model.activation_checkpointing_enable({"use_reentrant": False})
    value = score_pack(model, ROW).balance
    value.backward()
    found = {name: weight.grad.clone() for name, weight in model.named_parameters() if weight.grad is not None}
    model.zero_grad()
    wanted = 0.25 * model(input_ids=ROW["input_ids"]).aux_loss
    wanted.backward()
    assert value.item() == pytest.approx(wanted.item(), rel=1e-6)
    assert any("gate" in name or "router" in name for name in found)
    for name, weight in model.named_parameters():
        if name in found:
            torch.testing.assert_close(found[name], weight.grad, rtol=1e-4, atol=1e-7)


def test_a_shared_prefix_counts_once():
    """Two rows of a common beginning, 5 9: the loss is of six tokens, not of eight."""
    model = experts(MixtralConfig)
    tree = pack([5, 9, 33, 2, 60, 7], ends=[6, 6, 4, 4, 6, 6]) | {"position_ids": torch.tensor([[0, 1, 2, 3, 2, 3]])}
    logits = []
    for row, first in (([5, 9, 33, 2], 0), ([5, 9, 60, 7], 2)):
        routed = model(input_ids=torch.tensor([row])).router_logits
        logits.append([layer[first:] for layer in routed])
    layers = tuple(torch.cat(parts) for parts in zip(*logits, strict=True))
    wanted = 0.25 * load_balancing_loss_func(layers, 4, 2)
    assert score_pack(model, tree).balance.item() == pytest.approx(wanted.item(), rel=1e-5)


def test_below_an_adapter_it_is_the_same():
    bare = score_pack(experts(MixtralConfig), ROW).balance.item()
    grown = attach_trainable(experts(MixtralConfig), Lora(rank=2, alpha=4, target_modules=("q_proj",)))
    found = score_pack(grown, ROW).balance
    assert found.item() == pytest.approx(bare, rel=1e-6)
    found.backward()
    assert any(weight.grad is not None and weight.grad.any() for name, weight in grown.named_parameters() if "lora_B" in name)


def test_who_does_not_ask_or_learn_gets_none():
    silent = experts(MixtralConfig, asked=False)
    assert balance_coefficient(silent) == 0
    assert score_pack(silent, ROW).balance is None
    with torch.no_grad():
        assert score_pack(experts(MixtralConfig), ROW).balance is None


def test_a_pack_adds_its_part_of_the_steps_mean():
    """Of a step of 28 tokens a pack of 7 adds a quarter of its loss."""
    model = experts(MixtralConfig)
    trainer = SimpleNamespace(
        objective=SimpleNamespace(
            summed=lambda scores, inputs: (scores.logprobs.sum() * 0, [Part({}, len(inputs["score"]))]),
            size=lambda inputs: len(inputs["score"]),
            one_in=1,
        ),
        _accumulator=Accumulator(),
        accelerator=SimpleNamespace(num_processes=1),
    )
    batch = ROW | {"rows": torch.zeros_like(ROW["score"])}
    loss = PackedTrainer.compute_loss(trainer, model, batch, num_items_in_batch=torch.tensor(28.0))
    assert loss.item() == pytest.approx(score_pack(model, ROW).balance.item() / 4, rel=1e-6)
