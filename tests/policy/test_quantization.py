"""Quantized weights: properties that they must share with full-precision weights."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

from clawpipe.errors import ConfigError
from clawpipe.model.engines.base import Sampling
from clawpipe.model.engines.embedded import EmbeddedEngine
from clawpipe.model.policy.base import resolve_base
from clawpipe.model.policy.load import load_base
from clawpipe.model.policy.quantization import require

CPU = torch.device("cpu")
HELD = ["nf4", "int8", "int8-torchao"]
IDS = torch.arange(60, 100)[None]


@pytest.fixture(scope="module")
def base() -> Path:
    torch.set_num_threads(1)
    return resolve_base("random").path


def log_probs(model: torch.nn.Module, ids: torch.Tensor) -> torch.Tensor:
    return model(input_ids=ids).logits.float().log_softmax(-1)


@pytest.mark.parametrize(("held", "bits", "worst"), [("nf4", 4, 0.2), ("int8", 8, 0.01), ("int8-torchao", 8, 0.005)])
def test_it_is_near_the_whole_model_but_not_it(base, held, bits, worst):
    whole, quantized = (load_base(base, "float32", CPU, quantization=kind) for kind in ("none", held))
    with torch.inference_mode():
        p, q = log_probs(whole, IDS), log_probs(quantized, IDS)
    divergence = (p.exp() * (p - q)).sum(-1).mean().item()
    assert 1e-5 < divergence < worst
    weight = quantized.get_submodule("model.layers.0.self_attn.q_proj").weight
    stored = getattr(weight, "qdata", weight.data)  # torchao wraps the integers
    assert stored.numel() * stored.element_size() == 64 * 64 * bits // 8


@pytest.mark.parametrize(("held", "mean"), [("nf4", 1e-6), ("int8", 2e-3), ("int8-torchao", 1e-6)])
def test_log_probs_do_not_depend_on_neighbours_or_gradients(base, held, mean):
    """Else those that were recorded in a batch are not those that the trainer finds in a pack.

    LLM.int8 rounds activations too, where a difference in the last bit now and then becomes one of a whole step.
    """
    model = load_base(base, "float32", CPU, quantization=held)
    model.requires_grad_(False)
    model.get_input_embeddings().requires_grad_(True)
    model.train()
    with_gradients = log_probs(model, IDS).detach()
    model.eval()
    with torch.inference_mode():
        alone, batch = log_probs(model, IDS), log_probs(model, IDS.repeat(3, 1))[1:2]
        beginning = log_probs(model, IDS[:, :9])
    for other in (with_gradients, batch, beginning):
        assert (other - alone[:, : other.shape[1]]).abs().mean() < mean


@pytest.mark.parametrize("held", HELD)
def test_two_loads_give_the_same_bits(base, held):
    with torch.inference_mode():
        first, second = (log_probs(load_base(base, "float32", CPU, quantization=held), IDS) for _ in range(2))
    assert torch.equal(first, second)


@pytest.mark.parametrize("held", HELD)
def test_the_engine_samples_what_it_scores(base, held):
    engine = EmbeddedEngine(base, None, device="cpu", quantization=held)
    prompts = [[*range(70, 80)], [*range(70, 75), *range(100, 104)]]
    turns = engine.begin(prompts).sample({0: 1, 1: 2}, Sampling(temperature=1.0, max_new_tokens=6, stop_ids=(257,)))
    for row, prompt in enumerate(prompts):
        ids, recorded, _ = turns[row]
        assert engine.score(prompt + ids, len(prompt)) == pytest.approx(recorded, abs=2e-5)


@pytest.mark.parametrize("held", ["fp8", "int4-torchao"])
def test_what_takes_a_gpu_is_refused_without_one(base, held):
    with pytest.raises(ConfigError, match="needs a GPU") as refused:
        load_base(base, "float32", CPU, quantization=held)
    assert "int8-torchao" in refused.value.fix


def test_a_missing_library_is_named_with_the_remedy(monkeypatch):
    monkeypatch.setattr(sys, "path", [])
    monkeypatch.delitem(sys.modules, "bitsandbytes", raising=False)
    with pytest.raises(ConfigError, match="bitsandbytes, which is not installed") as refused:
        require("nf4", "cpu", "serving.quantization")
    assert refused.value.where == "serving.quantization"
    assert "clawpipe[quant]" in refused.value.fix
    require("none", "cpu")


def test_no_gradient_goes_through_int4():
    """Transformers' own error shows why a night refuses to train on it."""
    from torchao.quantization import Int4WeightOnlyConfig, Int8WeightOnlyConfig
    from transformers import TorchAoConfig
    from transformers.quantizers.quantizer_torchao import TorchAoHfQuantizer

    answers = [TorchAoHfQuantizer(TorchAoConfig(config())).is_trainable for config in (Int4WeightOnlyConfig, Int8WeightOnlyConfig)]
    assert answers == [False, True]


@pytest.mark.parametrize("held", HELD)
def test_the_backward_pass_keeps_no_dequantized_weights(base, held):
    """Otherwise dequantized weights would be kept from the forward to the backward pass, and nothing saved."""
    assert saved_bytes(load_base(base, "float32", CPU, quantization=held)) <= saved_bytes(load_base(base, "float32", CPU)) * 1.1


def saved_bytes(model: torch.nn.Module) -> int:
    """Return the bytes that autograd keeps of a forward pass, each storage once, without weights."""
    model.requires_grad_(False)
    model.get_submodule("model.embed_tokens").requires_grad_(True)
    weights = {weight.data_ptr() for weight in model.parameters() if type(weight) is torch.nn.Parameter}
    kept: dict[int, int] = {}

    def note(tensor: torch.Tensor) -> torch.Tensor:
        if tensor.data_ptr() not in weights:
            kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        logits = model(input_ids=IDS).logits
    assert logits.requires_grad
    return sum(kept.values())


def test_gradients_through_int8_equal_those_of_its_weights(base):
    layer = load_base(base, "float32", CPU, quantization="int8-torchao").get_submodule("model.layers.0.mlp.up_proj")
    torch.manual_seed(0)
    hidden, gradient = torch.randn(2, 5, 64, requires_grad=True), torch.randn(2, 5, 128)
    layer(hidden).backward(gradient)
    assert hidden.grad is not None
    torch.testing.assert_close(hidden.grad, gradient @ layer.weight.dequantize())
