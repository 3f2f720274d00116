"""Merging into full precision keeps what was learnt; merging into a quantized layer loses it, without a word."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from peft import PeftModel
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM, Qwen2Config, Qwen2ForCausalLM

from clawpipe.core.config.training import Lora
from clawpipe.learn.training.model.adapter import attach_trainable, save_adapter, unfreeze
from clawpipe.model.policy.base import copy_companions
from clawpipe.model.policy.load import load_base
from clawpipe.model.policy.tiny import byte_tokenizer
from clawpipe.model.policy.vocabulary import load_tokenizer
from clawpipe.model.policy.weights import written_tensors
from clawpipe.play.workers.merge import merge

CPU = torch.device("cpu")
IDS = torch.tensor([[*range(97, 123), *range(60, 90)]])


def likely(model):
    with torch.inference_mode():
        return model(input_ids=IDS).logits.log_softmax(-1)


def kl(p, q):
    return (p.exp() * (p - q)).sum(-1).mean().item()


@pytest.fixture(scope="module")
def steep(base, tmp_path_factory) -> Path:
    """The tiny model with one large weight a row, as grown models have: it sets the width of a quantizer's steps."""
    model = load_base(base.path, "float32", CPU)
    for layer in model.modules():
        if isinstance(layer, torch.nn.Linear) and layer is not model.get_output_embeddings():
            layer.weight.data[:, 0] = 3.0
    directory = tmp_path_factory.mktemp("steep")
    model.save_pretrained(directory)
    copy_companions(base.path, directory)
    return directory


@pytest.mark.parametrize("held", ["nf4", "int8-torchao"])
@pytest.mark.filterwarnings("ignore:Merge lora module to 4-bit linear:UserWarning")
def test_a_small_update_needs_a_merge_in_full_precision(steep, learn, tmp_path, held):
    model = learn(steps=4, rate=2e-3, quantization=held, base=steep)
    on = likely(model)
    with model.disable_adapter():
        off = likely(model)
    save_adapter(model, tmp_path / "adapter", "b" * 64)
    inside = likely(model.merge_and_unload())
    assert kl(off, inside) < 0.1 * kl(on, off)  # it is the untrained model again

    merge(steep, tmp_path / "adapter", "float32", tmp_path / "merged")
    whole = load_base(steep, "float32", CPU)
    untrained = likely(whole)
    beside = likely(PeftModel.from_pretrained(whole, tmp_path / "adapter"))
    assert kl(beside, likely(load_base(tmp_path / "merged", "float32", CPU))) < 1e-4 * kl(beside, untrained)


def test_merged_weights_are_a_model_in_the_given_precision(base, learn, tmp_path):
    save_adapter(learn(), tmp_path / "adapter", base.digest)
    merge(base.path, tmp_path / "adapter", "bfloat16", tmp_path / "merged")
    assert json.loads((tmp_path / "merged" / "config.json").read_text())["dtype"] == "bfloat16"
    assert (tmp_path / "merged" / "model.safetensors").stat().st_size < 0.6 * (base.path / "model.safetensors").stat().st_size
    assert not (tmp_path / "merged" / "digest.json").exists()
    text = "an alphabet"
    assert load_tokenizer(tmp_path / "merged")(text).input_ids == load_tokenizer(base.path)(text).input_ids


def test_equal_adapters_merge_into_equal_bytes(base, learn, tmp_path):
    save_adapter(learn(), tmp_path / "adapter", base.digest)
    for name in ("one", "two"):
        merge(base.path, tmp_path / "adapter", "float32", tmp_path / name)
    first, second = ({file.name: file.read_bytes() for file in (tmp_path / name).iterdir()} for name in ("one", "two"))
    assert first == second
    assert str(tmp_path) not in (tmp_path / "one" / "config.json").read_text()


SIZES = {
    "vocab_size": 259,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "initializer_range": 0.2,
}
TARGETS = [("lm_head",), ("embed_tokens",), ("q_proj", "lm_head"), ("embed_tokens", "lm_head"), ("q_proj",), "all-linear"]


@pytest.fixture(scope="module", params=[True, False], ids=["tied", "apart"])
def own_base(request, tmp_path_factory) -> Path:
    """A Llama of random weights whose head and input embedding are one weight, as in SmolLM2, or two."""
    torch.manual_seed(0)
    directory = tmp_path_factory.mktemp("base")
    LlamaForCausalLM(LlamaConfig(**SIZES, tie_word_embeddings=request.param)).save_pretrained(directory)
    byte_tokenizer().save_pretrained(directory)
    return directory


@pytest.fixture
def with_adapter(tmp_path):
    """with_adapter(base, targets): the logits of the base with a random adapter, which is written into tmp_path / "adapter"."""

    def make(base, targets):
        torch.manual_seed(1)
        model = attach_trainable(load_base(base, "float32", CPU), Lora(rank=4, alpha=8, target_modules=targets))
        for weight in (weight for weight in model.parameters() if weight.requires_grad):
            torch.nn.init.normal_(weight, std=0.3)
        save_adapter(model, tmp_path / "adapter", "b" * 64)
        with torch.inference_mode():
            return model(input_ids=IDS).logits

    return make


@pytest.mark.parametrize("targets", TARGETS, ids=str)
@pytest.mark.filterwarnings("ignore:Model has `tie_word_embeddings=True`:UserWarning")
def test_merged_weights_say_what_the_adapter_says(own_base, with_adapter, tmp_path, targets):
    wanted = with_adapter(own_base, targets)
    merge(own_base, tmp_path / "adapter", "float32", tmp_path / "merged")
    with torch.inference_mode():
        found = AutoModelForCausalLM.from_pretrained(tmp_path / "merged")(input_ids=IDS).logits
        before = load_base(own_base, "float32", CPU)(input_ids=IDS).logits
    assert (found - wanted).abs().max() < 1e-3
    assert (before - wanted).abs().max() > 1
    on_either = targets != "all-linear" and {"lm_head", "embed_tokens"} & set(targets)
    was_tied = json.loads((own_base / "config.json").read_text())["tie_word_embeddings"]
    written = load_file(tmp_path / "merged" / "model.safetensors")
    assert json.loads((tmp_path / "merged" / "config.json").read_text())["tie_word_embeddings"] is (was_tied and not on_either)
    assert ("lm_head.weight" in written) is (not was_tied or bool(on_either))


@pytest.mark.filterwarnings("ignore:Model has `tie_word_embeddings=True`:UserWarning")
def test_qwen_and_full_training_start_from_what_the_adapter_says(with_adapter, tmp_path):
    torch.manual_seed(0)
    Qwen2ForCausalLM(Qwen2Config(**SIZES, tie_word_embeddings=True)).save_pretrained(tmp_path / "base")
    byte_tokenizer().save_pretrained(tmp_path / "base")
    wanted = with_adapter(tmp_path / "base", ("v_proj", "lm_head"))
    model = unfreeze(load_base(tmp_path / "base", "float32", CPU), str(tmp_path / "adapter"))
    assert (model(input_ids=IDS).logits - wanted).abs().max() < 1e-3
    assert all(weight.requires_grad for weight in model.parameters())
    assert {"lm_head.weight", "model.embed_tokens.weight"} <= written_tensors(model).keys()
