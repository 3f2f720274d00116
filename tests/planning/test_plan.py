"""Memory plans: shapes against transformers' own models, changes that make a night fit, the configs that ship."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import save_file
from transformers import AutoConfig, AutoModelForCausalLM

from clawpipe.core.config import NightConfig, load_config
from clawpipe.core.config.load import with_settings
from clawpipe.core.config.training import Lora
from clawpipe.errors import ConfigError, NotFoundError
from clawpipe.model.planning.architecture import KNOWN, architecture_of, from_config, router_note
from clawpipe.model.planning.hardware import Device, named
from clawpipe.model.planning.memory import lora_parameters, training, weights
from clawpipe.model.planning.plan import as_dict, estimate, is_sharded, phases_of
from clawpipe.model.planning.targets import is_target, require_targets
from tests.planning.suggested import suggested

ROOT = Path(__file__).parents[2]
SIZES = {"7b-16gb": 16e9, "13b-32gb": 32e9, "70b-80gb": 80e9}
LLAMA = {"hidden_size": 64, "intermediate_size": 176, "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2}


def a_night(**changes: Any) -> NightConfig:
    return with_settings(NightConfig(), {name.replace("__", "."): value for name, value in changes.items()})


@pytest.mark.parametrize("name", SIZES)
def test_each_size_fits_the_gpu_that_it_names(name: str):
    config = load_config(ROOT / "configs" / "sizes" / f"{name}.yaml")
    device = named(name.split("-")[1])
    found = estimate(config, architecture_of(config.model.base), device)
    assert device.bytes == SIZES[name]
    assert {found.verdict(phase) for phase in found.phases} == {"fits"}
    assert found.changes == {}
    assert found.longest_row.bytes <= device.bytes


def test_parameters_are_those_of_the_real_model():
    shape = LLAMA | {"vocab_size": 300, "tie_word_embeddings": False}
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(AutoConfig.for_model("llama", **shape))
    found = from_config("small", shape)
    assert found.parameters == model.num_parameters()
    assert found.linear_parameters == sum(p.numel() for name, p in model.named_parameters() if "_proj" in name)


@pytest.mark.parametrize(("variant", "extra"), [("lora", 0), ("dora", 64 + 32 + 32 + 64 + 176 + 176 + 64)])
def test_an_adapter_has_rank_times_in_plus_out(variant: Any, extra: int):
    model = from_config("small", LLAMA | {"vocab_size": 300})
    sides = (64 + 64) + 2 * (64 + 32) + (64 + 64) + 3 * (64 + 176)
    assert lora_parameters(model, Lora(rank=4, variant=variant)) == 3 * (4 * sides + extra)


@pytest.mark.parametrize("name", SIZES)
def test_each_size_carries_what_the_function_suggests(name: str):
    config = load_config(ROOT / "configs" / "sizes" / f"{name}.yaml")
    wanted = suggested(config, architecture_of(config.model.base), named(name.split("-")[1]))
    train = {f"train.{setting}" for setting in ("learning_rate", "lora.rank", "lora.alpha", "pack_tokens", "batch_rows")}
    assert set(wanted) == train | {"curation.max_tokens", "rollouts.shard_rollouts"}
    assert with_settings(config, wanted) == config


@pytest.mark.parametrize(("name", "billions"), [("Qwen/Qwen2.5-7B-Instruct", 7.62), ("meta-llama/Llama-3.1-70B", 70.55)])
def test_known_models_have_their_published_size(name: str, billions: float):
    assert architecture_of(name).parameters / 1e9 == pytest.approx(billions, abs=0.01)


def test_a_pattern_of_modules_that_takes_too_long_is_refused():
    with pytest.raises(ConfigError, match="took more than"):
        is_target("(?:.|.)*l", "model.layers.0.mlp.gate_proj")
    assert is_target(r".*\.(q|k)_proj", "model.layers.0.self_attn.q_proj")
    assert not is_target(r"q_proj", "model.layers.0.self_attn.q_proj")


def test_a_model_that_is_nowhere_is_a_users_mistake():
    with pytest.raises(NotFoundError, match="not known here"):
        architecture_of("nobody/no-such-model")
    with pytest.raises(ConfigError, match="mixture of experts"):
        from_config("moe", LLAMA | {"num_experts": 8})


@pytest.mark.parametrize(
    ("settings", "note"),
    [
        ({}, ""),
        ({"num_experts": 0}, ""),
        ({"num_experts": 8, "output_router_logits": True, "router_aux_loss_coef": 0.01}, ""),
        ({"num_local_experts": 8}, "trained without its router's load-balancing loss"),
        ({"num_experts": 8, "router_aux_loss_coef": 0.01}, "load-balancing loss"),
        ({"text_config": {"num_experts": 8, "output_router_logits": True}}, "load-balancing loss"),
    ],
)
def test_what_a_mixture_of_experts_is_not_taught_is_said(tmp_path, settings: dict[str, Any], note: str):
    (tmp_path / "config.json").write_text(json.dumps(LLAMA | settings))
    found = router_note(str(tmp_path))
    assert note in found
    assert bool(found) == bool(note)
    assert router_note("nobody/no-such-model") == ""


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"num_attention_heads": 0}, "num_attention_heads is 0"),
        ({"num_attention_heads": None}, "num_attention_heads is None"),
        ({"hidden_size": "64"}, "hidden_size is '64'"),
        ({"hidden_size": [64]}, "hidden_size"),
        ({"num_hidden_layers": -3}, "num_hidden_layers is -3"),
        ({"intermediate_size": 1e300}, "intermediate_size"),
        ({"vocab_size": float("nan")}, "vocab_size"),
        ({"vocab_size": True}, "vocab_size"),
        ({"head_dim": 0}, "head_dim is 0"),
        ({"max_position_embeddings": {}}, "max_position_embeddings"),
    ],
)
def test_an_odd_model_config_is_named(settings: dict, said: str):
    with pytest.raises(ConfigError, match=said):
        from_config("odd", LLAMA | {"vocab_size": 300} | settings)


@pytest.mark.parametrize("content", [b"", b"[]", b"null", b"{", b"\xff\xfe", b"[" * 100_000])
def test_a_file_that_is_no_model_config_is_named(content: bytes, tmp_path: Path):
    (tmp_path / "config.json").write_bytes(content)
    with pytest.raises(ConfigError) as caught:
        architecture_of(str(tmp_path))
    assert caught.value.where == str(tmp_path / "config.json")


def test_nulls_are_defaults_and_vision_models_count_as_language():
    plain = from_config("m", LLAMA | {"vocab_size": 300, "head_dim": 16, "max_position_embeddings": 32768})
    assert from_config("m", LLAMA | {"vocab_size": 300, "head_dim": None, "max_position_embeddings": None}) == plain
    seeing = {"model_type": "sees", "text_config": LLAMA | {"vocab_size": 300}, "vision_config": {"hidden_size": 1}}
    assert from_config("m", seeing) == plain


@pytest.mark.parametrize("wanted", ["all-linear", ("q_proj",), ("self_attn.v_proj", "lm_head"), r".*layers\.1\..*_proj"])
def test_modules_that_there_are_can_be_trained(wanted: Any):
    require_targets("random", Lora(target_modules=wanted))
    require_targets("nobody/no-such-model", Lora(target_modules=("whatever",)))  # of that one nothing is known here


@pytest.mark.parametrize(("wanted", "named"), [(("q_proj", "c_attn"), "'c_attn'"), ("q_proj", "'q_proj'"), (("proj",), "'proj'")])
def test_modules_that_there_are_not_are_refused(wanted: Any, named: str):
    """PEFT accepts a list of which only one name matches, and trains less than asked for."""
    with pytest.raises(ConfigError, match=f"{named} matches no module of random"):
        require_targets("random", Lora(target_modules=wanted))


@pytest.fixture
def phi3(tmp_path: Path) -> str:
    """A directory with a config of Llama's fields, and weights of which two are fused."""
    (tmp_path / "config.json").write_text(json.dumps(LLAMA | {"model_type": "phi3", "vocab_size": 300}))
    names = ["self_attn.qkv_proj", "self_attn.o_proj", "mlp.gate_up_proj", "mlp.down_proj"]
    written = {f"model.layers.0.{name}.weight": torch.zeros(2, 2) for name in names}
    save_file(written | {"model.layers.0.input_layernorm.weight": torch.zeros(2)}, tmp_path / "model.safetensors")
    return str(tmp_path)


@pytest.mark.parametrize("wanted", ["all-linear", ("qkv_proj", "mlp.gate_up_proj"), ("lm_head",), r".*\.(qkv|o)_proj"])
def test_modules_of_other_families_can_be_trained(phi3: str, wanted: Any):
    require_targets(phi3, Lora(target_modules=wanted))


@pytest.mark.parametrize("wanted", [("q_proj",), ("qkv_proj", "gate_proj"), ("input_layernorm",), r".*\.q_proj"])
def test_modules_of_llama_alone_are_refused_elsewhere(phi3: str, wanted: Any):
    with pytest.raises(ConfigError, match="matches no module") as refused:
        require_targets(phi3, Lora(target_modules=wanted))
    for name in ("qkv_proj", "o_proj", "gate_up_proj", "down_proj"):
        assert name in refused.value.fix


def test_weights_that_cannot_be_read_refuse_no_module(phi3: str):
    Path(phi3, "model.safetensors").write_bytes(b"torn")
    require_targets(phi3, Lora(target_modules=("whatever",)))
    Path(phi3, "config.json").write_bytes(b"torn")
    require_targets(phi3, Lora(target_modules=("whatever",)))


def test_dora_beside_the_layers_is_planned():
    plain, dora = (a_night(train__lora__target_modules=["lm_head"], train__lora__variant=one) for one in ("lora", "dora"))
    model = architecture_of("Qwen/Qwen2.5-7B")
    assert training(model, dora, "gpu").bytes == training(model, plain, "gpu").bytes  # the estimate knows the layers' modules alone


def test_a_plan_works_from_any_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    config = a_night(runtime__accelerate="configs/accelerate/fsdp2.yaml", runtime__train_processes=2)
    assert is_sharded(config)


def test_four_bits_are_an_eighth_of_float32_except_the_head():
    model = architecture_of("Qwen/Qwen2.5-7B")
    whole, rest = weights(model, a_night())
    small, same = weights(model, a_night(model__quantization="nf4"))
    assert 4.0 / (small / whole * 32) == pytest.approx(1, abs=0.05)  # 4 bits and their scales
    assert rest == same


@given(st.sampled_from(sorted(KNOWN)), st.integers(3, 200))
def test_what_is_proposed_fits(name: str, gigabytes: int):
    device, model = Device("a gpu", "gpu", gigabytes * 1e9), architecture_of(name)
    found = estimate(a_night(), model, device)
    if found.changes is None:
        return
    changed = with_settings(a_night(), found.changes)
    assert all(phase.bytes <= device.bytes for phase in phases_of(changed, model, device))


def test_only_what_is_needed_is_changed():
    model = architecture_of("Qwen/Qwen2.5-7B")
    found = estimate(a_night(model__dtype="bfloat16"), model, named("rtx-4090"))
    assert found.changes
    for name in found.changes:
        fewer = with_settings(a_night(model__dtype="bfloat16"), {k: v for k, v in found.changes.items() if k != name})
        assert any(phase.bytes > named("rtx-4090").bytes for phase in phases_of(fewer, model, named("rtx-4090")))


def test_longer_packs_take_more_and_checkpointing_less_memory():
    model = architecture_of("Qwen/Qwen2.5-0.5B")
    small, large = (training(model, a_night(train__pack_tokens=tokens), "gpu").bytes for tokens in (1024, 4096))
    saved = training(model, a_night(train__pack_tokens=4096, train__gradient_checkpointing=True), "gpu").bytes
    assert small < large
    assert saved < large


def test_shards_are_parts_of_what_one_process_holds():
    model = architecture_of("meta-llama/Llama-3.1-70B")
    config = a_night(model__dtype="bfloat16", train__adapter="full", runtime__train_processes=8)
    alone, cut = training(model, config, "gpu"), training(model, config, "gpu", sharded=True)
    assert cut.parts["optimiser state"] * 8 == alone.parts["optimiser state"]
    assert cut.bytes < alone.bytes / 4


def test_json_gives_whole_bytes_that_add_up():
    found = as_dict(estimate(a_night(), architecture_of("smollm2-135m-instruct"), named("h100")))
    phase = found["phases"]["generate"]
    assert phase["bytes"] == pytest.approx(sum(phase["parts"].values()) * phase["processes"], abs=20)


def test_an_unknown_gpu_is_named_with_what_is_known():
    with pytest.raises(ConfigError, match=r"the GPU .* is not known") as error:
        named("gtx-1")
    assert "a100-80" in str(error.value.fix)


def test_all_weights_in_bfloat16_take_eighteen_bytes_each():
    """2 bytes of weight, 4 of float32 master, 4 of gradient, 8 of AdamW's moments; with 8 in total, training had no effect."""
    model = architecture_of("Qwen/Qwen2.5-0.5B")
    config = a_night(model__dtype="bfloat16", train__adapter="full")
    parts = training(model, config, "gpu").parts
    held = ("base weights", "float32 master weights", "gradients", "optimiser state")
    assert sum(parts[name] for name in held) == 18 * model.parameters
    small = Device("a gpu", "gpu", 12 * model.parameters)
    found = estimate(config, model, small)
    assert found.changes is None or found.changes.get("train.adapter") == "lora"


def test_adapters_gradients_are_float32_on_any_base():
    model = architecture_of("Qwen/Qwen2.5-0.5B")
    parts = training(model, a_night(model__dtype="bfloat16"), "gpu").parts
    count = lora_parameters(model, Lora())
    assert (parts["adapter"], parts["gradients"], parts["optimiser state"]) == (4 * count, 4 * count, 8 * count)
