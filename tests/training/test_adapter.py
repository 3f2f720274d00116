"""What is trained: the variants of LoRA, and all weights."""

import json
import math

import pytest
import torch
from peft import PeftModel
from peft.tuners.lora import LoraLayer
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from clawpipe.core.config.training import Lora
from clawpipe.errors import ConfigError
from clawpipe.learn.training.model.adapter import attach_trainable, save_adapter, unfreeze

ONE = {"optimizer_steps": 1, "epochs": 1}


def logits(model):
    model.eval()
    with torch.no_grad():
        return model(input_ids=torch.tensor([[1, 2, 3, 4, 5]])).logits


@pytest.mark.parametrize("variant", ["lora", "rslora", "dora"])
def test_a_fresh_adapter_of_any_variant_changes_nothing(tiny_llama, variant):
    expected = logits(tiny_llama())
    torch.testing.assert_close(logits(attach_trainable(tiny_llama(), Lora(rank=4, alpha=8, variant=variant))), expected)


def test_variants_scale_as_they_say(tiny_llama):
    for variant, scale in (("lora", 8 / 4), ("rslora", 8 / math.sqrt(4))):
        model = attach_trainable(tiny_llama(), Lora(rank=4, alpha=8, variant=variant))
        assert {module.scaling["default"] for module in model.modules() if isinstance(module, LoraLayer)} == {scale}


@pytest.mark.parametrize("variant", ["rslora", "dora"])
def test_a_variant_trains_is_stored_and_goes_on(request_for, here, tiny_llama, variant):
    lora = {"lora": Lora(rank=4, alpha=8, variant=variant)}
    outcome = here(request_for("first", train=ONE | lora))
    config = json.loads((outcome / "adapter" / "adapter_config.json").read_text())
    assert (config["use_rslora"], config["use_dora"]) == (variant == "rslora", variant == "dora")
    stored = load_file(outcome / "adapter" / "adapter_model.safetensors")
    assert any("magnitude" in name for name in stored) == (variant == "dora")
    assert (logits(PeftModel.from_pretrained(tiny_llama(), outcome / "adapter")) - logits(tiny_llama())).abs().max() > 1e-5
    here(request_for("second", train=ONE | lora, init_adapter=str(outcome / "adapter")))
    with pytest.raises(ConfigError, match="use_"):
        here(request_for("third", train=ONE | {"lora": Lora(rank=4, alpha=8)}, init_adapter=str(outcome / "adapter")))


def adapter_on(model, directory, **settings):
    save_adapter(attach_trainable(model, Lora(rank=4, alpha=8, **settings)), directory, "ab12")
    return str(directory)


@pytest.mark.parametrize("targets", [("q_proj", "v_proj"), r".*layers\.0\..*_proj", "all-linear"])
def test_an_adapter_goes_on_where_the_settings_put_it(tiny_llama, tmp_path, targets):
    stored = adapter_on(tiny_llama(), tmp_path / "stored", target_modules=targets)
    grown = attach_trainable(tiny_llama(), Lora(rank=4, alpha=8, target_modules=targets), stored)
    assert {weight.requires_grad for name, weight in grown.named_parameters() if "lora_" in name} == {True}
    with pytest.raises(ConfigError, match="on other modules") as refused:
        attach_trainable(tiny_llama(), Lora(rank=4, alpha=8, target_modules=("o_proj",)), stored)
    assert refused.value.where == "train.lora.target_modules"


def test_dropout_is_that_of_the_settings_on_an_older_adapter(tiny_llama, tmp_path):
    stored = adapter_on(tiny_llama(), tmp_path / "stored")
    grown = attach_trainable(tiny_llama(), Lora(rank=4, alpha=8, dropout=0.25), stored)
    assert {module.p for module in grown.modules() if isinstance(module, torch.nn.Dropout)} == {0.25}


@pytest.mark.parametrize("targets", [("no_such_proj",), r"q_proj"])
def test_modules_that_the_model_has_not_are_a_users_mistake(tiny_llama, targets):
    with pytest.raises(ConfigError, match="no adapter can be put there") as refused:
        attach_trainable(tiny_llama(), Lora(rank=4, alpha=8, target_modules=targets))
    assert refused.value.where == "train.lora.target_modules"


def test_full_fine_tuning_trains_and_saves_every_weight(request_for, here, tmp_path):
    (tmp_path / "base" / "tokenizer.json").write_text("{}")
    request = request_for("full", train=ONE | {"adapter": "full"})
    outcome = here(request)
    assert sorted(path.name for path in outcome.iterdir()) == ["metrics.jsonl", "model", "summary.json"]
    assert {"config.json", "model.safetensors", "tokenizer.json"} <= {path.name for path in (outcome / "model").iterdir()}
    assert not any(str(tmp_path) in file.read_text() for file in (outcome / "model").glob("*.json"))
    base, trained = (AutoModelForCausalLM.from_pretrained(path) for path in (tmp_path / "base", outcome / "model"))
    moved = {name: not torch.equal(weight, base.state_dict()[name]) for name, weight in trained.state_dict().items()}
    assert all(moved.values())
    assert moved.keys() == base.state_dict().keys()
    again = here(request_for("again", train=ONE | {"adapter": "full"}))
    for name in ("config.json", "model.safetensors"):
        assert (again / "model" / name).read_bytes() == (outcome / "model" / name).read_bytes()


@pytest.mark.slow
def test_full_fine_tuning_resumes_and_holds_a_critic(request_for, here, cut):
    settings = {"adapter": "full", "method": "ppo", "epochs": 1}

    straight = here(request_for("straight", train=settings))
    cut(request_for("cut", train=settings))
    again = here(request_for("cut", train=settings))
    for name in ("model.safetensors", "value_head.safetensors"):
        assert (again / "model" / name).read_bytes() == (straight / "model" / name).read_bytes()
    assert not any("value_head" in name for name in load_file(straight / "model" / "model.safetensors"))
    AutoModelForCausalLM.from_pretrained(straight / "model")


def test_all_weights_may_start_from_an_adapter(request_for, here, tiny_llama):
    adapter = here(request_for("first", train=ONE)) / "adapter"
    merged = unfreeze(tiny_llama(), str(adapter))
    torch.testing.assert_close(logits(merged), logits(PeftModel.from_pretrained(tiny_llama(), adapter)), rtol=0, atol=1e-5)
    assert all(parameter.requires_grad for parameter in merged.parameters())
