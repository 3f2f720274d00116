"""Weights with less precision than float32, and weights that are not finite."""

import json
import os
import subprocess
import sys

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from clawpipe.core.config.training import Lora
from clawpipe.errors import ConfigError, TrainingError
from clawpipe.learn.training.checkpoint.moments import trainable
from clawpipe.learn.training.checkpoint.state import Movement
from clawpipe.learn.training.model.build import build_model
from clawpipe.learn.training.outcome import nothing_learnt
from clawpipe.learn.training.produce import run_training
from clawpipe.learn.training.trainers.base import PackedTrainer
from clawpipe.learn.training.trainers.optimizer import MasterAdamW
from clawpipe.model.policy.weights import finite

FULL = {"adapter": "full", "learning_rate": 3e-5, "epochs": 4}


def summary_of(outcome):
    return json.loads((outcome / "summary.json").read_text())


def test_steps_on_master_weights_are_those_of_torch_in_float32():
    generator = torch.Generator().manual_seed(0)
    start = torch.randn(40, 8, generator=generator).bfloat16()
    narrow, reference = nn.Parameter(start.clone()), nn.Parameter(start.float())
    options = {"lr": 1e-4, "betas": (0.8, 0.95), "eps": 1e-6, "weight_decay": 0.1}
    ours, theirs = MasterAdamW([narrow], **options), torch.optim.AdamW([reference], **options)
    for _ in range(30):
        gradient = torch.randn(start.shape, generator=generator)
        narrow.grad, reference.grad = gradient.bfloat16(), gradient.bfloat16().float()
        ours.step()
        theirs.step()
        assert torch.equal(ours.state[narrow]["master"], reference.detach())
        assert torch.equal(narrow.detach(), reference.detach().bfloat16())
    assert not torch.equal(narrow.detach(), start)


def test_all_weights_in_bfloat16_go_where_they_go_in_float32(request_for, here, tiny_llama, tmp_path):
    """At a usual rate an update is smaller than bfloat16 can add: without master weights 3.7 % of the weights moved."""
    tiny_llama().bfloat16().save_pretrained(tmp_path / "base")
    start = {name: tensor.float() for name, tensor in tiny_llama().bfloat16().state_dict().items()}
    moved = {}
    for dtype in ("float32", "bfloat16"):
        outcome = here(request_for(dtype, train=FULL, dtype=dtype))
        after = load_file(outcome / "model" / "model.safetensors")
        assert {tensor.dtype for tensor in after.values()} == {getattr(torch, dtype)}
        assert json.loads((outcome / "model" / "config.json").read_text())["dtype"] == dtype
        moved[dtype] = torch.cat([(after[name].float() - start[name]).flatten() for name in sorted(after)])
    large = moved["float32"].abs() > 1e-4  # half of bfloat16's step at 0.05, a large weight of this model
    assert large.float().mean() > 0.5
    assert (moved["bfloat16"][large] != 0).float().mean() > 0.95
    assert torch.cosine_similarity(moved["float32"], moved["bfloat16"], dim=0) > 0.9


def test_a_run_in_bfloat16_that_was_cut_ends_with_the_same_bytes(request_for, here, cut):
    straight = here(request_for("straight", train=FULL, dtype="bfloat16"))
    cut(request_for("cut", train=FULL, dtype="bfloat16"))
    again = here(request_for("cut", train=FULL, dtype="bfloat16"))
    weights = "model/model.safetensors"
    assert (again / weights).read_bytes() == (straight / weights).read_bytes()


def test_attention_in_bfloat16_with_aten_below_avx512():
    """On a CPU with AMX torch alone fails from 64 tokens on: oneDNN packs the keys for AMX, and ATen refuses them."""
    script = "import clawpipe, torch; q = torch.ones(1, 1, 64, 16).bfloat16()"
    script += "; assert torch.nn.functional.scaled_dot_product_attention(q, q, q).eq(1).all()"
    subprocess.run([sys.executable, "-c", script], env=os.environ | {"ATEN_CPU_CAPABILITY": "avx2"}, check=True, timeout=120)


def test_gradients_of_many_packs_are_added_in_float32(request_for):
    model = build_model(request_for("grad", train=FULL, dtype="bfloat16"))
    weight = model.get_output_embeddings().weight
    assert weight.dtype == torch.bfloat16
    for _ in range(600):
        weight[0, 0].backward()
    assert weight.grad[0, 0] == 600  # in bfloat16 256 + 1 is 256


@pytest.mark.parametrize("variant", ["lora", "dora"])
def test_adapters_on_a_bfloat16_base_are_float32(request_for, here, variant):
    train = {"lora": Lora(rank=4, alpha=8, variant=variant), "epochs": 1}
    request = request_for("lora", train=train, dtype="bfloat16")
    assert {weight.dtype for weight in build_model(request).parameters() if weight.requires_grad} == {torch.float32}
    first = here(request) / "adapter"
    assert {tensor.dtype for tensor in load_file(first / "adapter_model.safetensors").values()} == {torch.float32}
    onwards = build_model(request_for("onwards", train=train, dtype="bfloat16", init_adapter=str(first)))
    assert {weight.dtype for weight in onwards.parameters() if weight.requires_grad} == {torch.float32}


@pytest.mark.parametrize("adapter", ["lora", "full"])
def test_float16_is_refused_before_a_process_is_started(request_for, tmp_path, adapter):
    request = request_for("half", train={"adapter": adapter}, dtype="float16")
    with pytest.raises(ConfigError, match="float16 is not trained in"):
        run_training(request, tmp_path / "half", 60.0, lambda facts: None)
    with pytest.raises(ConfigError, match="float16 is not trained in"):
        build_model(request)


@pytest.mark.parametrize("train", [{}, {"adapter": "full"}, {"method": "ppo"}], ids=str)
def test_no_outcome_has_a_weight_that_is_not_finite(request_for, here, train, monkeypatch):
    """Losses and gradients may all have been finite; the published weights count."""
    request, learn = request_for("wild", train=train | {"epochs": 1}), PackedTrainer.train

    def overflow(trainer, *arguments, **options):
        result = learn(trainer, *arguments, **options)
        *_, (_, last) = trainable(trainer.model)
        last.data.view(-1)[-1] = torch.inf
        return result

    monkeypatch.setattr(PackedTrainer, "train", overflow)
    with pytest.raises(TrainingError, match="trained weights are not finite") as failed:
        here(request)
    assert failed.value.exit_code == 70
    assert "\n" not in failed.value.what
    assert not list(request.weights.parent.parent.glob("outcome*"))


def test_a_weight_that_is_not_finite_is_named_and_counted():
    good = {"a": torch.ones(3), "b": torch.zeros(2, dtype=torch.bfloat16)}
    assert finite(good) is good
    with pytest.raises(TrainingError, match="3 of 8 trained weights") as failed:
        finite(good | {"c": torch.tensor([torch.nan, 1.0, torch.inf]), "b": torch.tensor([-torch.inf, 0.0]).bfloat16()})
    assert failed.value.where == "b"


@pytest.mark.parametrize("width", [3, 60_000])
def test_movement_is_the_relative_norm_of_the_change(width):
    """A large tensor is compared by a sample of its elements."""
    torch.manual_seed(0)
    model = nn.Linear(width, 4)
    before = torch.cat([weight.detach().flatten().clone() for weight in model.parameters()])
    movement = Movement(model)
    assert movement.relative(model) == 0
    with torch.no_grad():
        model.bias.add_(0.5)
        model.weight.add_(0.1)
    moved = (0.25 * 4 + 0.01 * 4 * width) ** 0.5
    assert movement.relative(model) == pytest.approx(moved / float(before.norm()), rel=1e-5 if width == 3 else 0.02)


def test_what_learns_nothing_says_why():
    assert nothing_learnt([0.0, 0.1], 1e-4) is None
    assert "gradient was 0 in all of 2" in (nothing_learnt([0.0, 0.0], 1e-4) or "")
    assert "moved by 0 of" in (nothing_learnt([0.1], 0.0) or "")
    assert "1e-09" in (nothing_learnt([0.1], 1e-9) or "")


def test_a_run_tells_how_far_it_went(request_for, here):
    told = summary_of(here(request_for("usual")))
    assert told["moved"] > 1e-3
    assert told["grad_norm_max"] > 0
    assert told["nothing_learnt"] is None


def test_a_run_whose_gradient_was_zero_says_so(request_for, here):
    """Every token is masked: recorded log-probs lie outside of IcePop's band."""
    told = summary_of(here(request_for("idle", train={"loss": {"icepop": (1e6, 2e6)}})))
    assert (told["grad_norm_max"], told["moved"]) == (0.0, 0.0)
    assert "the gradient was 0 in all of 6 optimizer steps" in told["nothing_learnt"]


def test_a_run_whose_adapter_did_not_move_says_so(request_for, here):
    told = summary_of(here(request_for("still", train={"learning_rate": 1e-30})))
    assert told["grad_norm_max"] > 0
    assert "of their norm in 6 optimizer steps: nothing was learnt" in told["nothing_learnt"]
