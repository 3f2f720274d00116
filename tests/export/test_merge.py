"""Merging into full precision keeps what was learnt; merging into a quantized layer loses it, without a word."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from peft import PeftModel

from clawpipe.policy.base import copy_companions
from clawpipe.policy.load import load_base
from clawpipe.policy.vocabulary import load_tokenizer
from clawpipe.training.model.adapter import save_adapter
from clawpipe.workers.merge import merge

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
