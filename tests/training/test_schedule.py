"""Optimizer settings: rates, batches, ends and checkpoints, compared with transformers' schedules."""

import json

import pytest
import torch
from transformers import get_constant_schedule_with_warmup, get_cosine_schedule_with_warmup, get_linear_schedule_with_warmup

from clawpipe.core.config.training import Lora, Train
from clawpipe.learn.training.checkpoint.files import Checkpoints
from clawpipe.learn.training.trainers.base import PackedTrainer
from clawpipe.learn.training.trainers.schedule import rate_factor

UPDATES = {"optimizer_steps": 4, "epochs": 3, "learning_rate": 1e-3}
ORACLES = {
    "constant": lambda optimizer, warmup, total: get_constant_schedule_with_warmup(optimizer, warmup),
    "linear": get_linear_schedule_with_warmup,
    "cosine": get_cosine_schedule_with_warmup,
}


def steps_of(outcome):
    return [json.loads(line) for line in (outcome / "metrics.jsonl").read_text().splitlines()]


def rates_of(kind, warmup, total):
    """Return the rate of each optimizer step: by hand in the warm-up, which transformers begins with 0, else by transformers."""
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1e-3)
    schedule, rates = ORACLES[kind](optimizer, warmup, total), []
    for _ in range(total):
        rates.append(schedule.get_last_lr()[0])
        optimizer.step()
        schedule.step()
    return [1e-3 * (step + 1) / (warmup + 1) for step in range(warmup)] + rates[warmup:]


@pytest.fixture
def used(monkeypatch):
    """Record the rate of each optimizer step, and the optimizer's groups at the end."""
    found, clip = {"rates": []}, PackedTrainer._clip_grad_norm

    def watch(trainer, model):
        found["rates"].append(trainer.optimizer.param_groups[0]["lr"])
        found["groups"] = trainer.optimizer.param_groups
        return clip(trainer, model)

    monkeypatch.setattr(PackedTrainer, "_clip_grad_norm", watch)
    return found


@pytest.mark.parametrize("kind", ORACLES)
@pytest.mark.parametrize("warmup", [0, 1, 3, 12])
def test_rates_after_the_warm_up_are_transformers(kind, warmup):
    assert [1e-3 * rate_factor(step, kind, warmup, 12) for step in range(12)] == pytest.approx(rates_of(kind, warmup, 12))


@pytest.mark.parametrize(("kind", "warmup"), [("linear", {"warmup_steps": 3}), ("cosine", {"warmup_ratio": 0.25})], ids=str)
def test_the_optimizer_steps_at_these_rates_and_says_so(request_for, here, used, kind, warmup):
    outcome = here(request_for("run", train=UPDATES | {"lr_scheduler_type": kind} | warmup))
    assert used["rates"] == pytest.approx(rates_of(kind, 3, 12))
    assert [step["learning_rate"] for step in steps_of(outcome)] == pytest.approx(used["rates"])


@pytest.mark.parametrize(
    ("kind", "warmup", "factors"),
    [
        ("constant", 0, [1, 1, 1, 1]),
        ("constant", 1, [0.5, 1, 1, 1]),
        ("constant", 3, [0.25, 0.5, 0.75, 1]),
        ("linear", 1, [0.5, 1, 2 / 3, 1 / 3]),
        ("cosine", 2, [1 / 3, 2 / 3, 1, 0.5]),
        ("linear", 4, [0.2, 0.4, 0.6, 0.8]),
        ("linear", 9, [0.1, 0.2, 0.3, 0.4]),
    ],
)
def test_no_step_of_a_short_round_is_taken_at_rate_0(kind, warmup, factors):
    assert [rate_factor(step, kind, warmup, 4) for step in range(4)] == pytest.approx(factors)


def test_the_first_step_of_a_warm_up_trains(request_for, here, used):
    settings = {"learning_rate": 1e-3, "warmup_steps": 1, "max_steps": 1}
    told = json.loads((here(request_for("run", train=settings)) / "summary.json").read_text())
    assert used["rates"] == [5e-4]
    assert told["moved"] > 0


def test_the_defaults_are_the_settings_of_every_night_so_far(request_for, here, used):
    here(request_for("run", train=UPDATES))
    assert used["rates"] == [1e-3] * 12
    for group in used["groups"]:
        assert (group["betas"], group["weight_decay"], group["eps"]) == ((0.9, 0.999), 0.0, 1e-8)


@pytest.mark.parametrize("train", [{}, {"adapter": "full"}], ids=str)
def test_betas_and_decay_reach_the_optimizer_except_for_norms(request_for, here, used, train):
    settings = UPDATES | train | {"epochs": 1, "adam_beta1": 0.8, "adam_beta2": 0.95, "weight_decay": 0.1}
    here(request_for("run", train=settings, dtype="bfloat16"))
    decayed, spared = used["groups"]
    assert decayed["betas"] == spared["betas"] == (0.8, 0.95)
    assert (decayed["weight_decay"], spared["weight_decay"]) == (0.1, 0.0)
    assert all(weight.dim() > 1 for weight in decayed["params"])
    assert len(spared["params"]) == (5 if train else 0)  # two norms a layer, and the last one


def test_decay_shrinks_what_has_no_gradient(request_for, here):
    """Advantages beyond IcePop's band: AdamW multiplies each weight by 1 - rate * decay and does no more."""
    settings = {
        "loss": {"icepop": (1e6, 2e6)},
        "lora": Lora(rank=4, alpha=8),
        "weight_decay": 10.0,
        "optimizer_steps": 1,
        "epochs": 1,
    }
    told = json.loads((here(request_for("run", train=settings)) / "summary.json").read_text())
    assert told["moved"] == pytest.approx(1e-3 * 10, rel=1e-3)
    assert "gradient was 0" in told["nothing_learnt"]


def test_a_cut_run_with_a_schedule_goes_on_where_it_was(request_for, here, cut, used):
    settings = UPDATES | {"lr_scheduler_type": "cosine", "warmup_ratio": 0.3, "weight_decay": 0.1}
    settings |= {"checkpoint_seconds": 1e9, "checkpoint_steps": 5}
    straight = here(request_for("straight", train=settings))
    rates = list(used["rates"])
    cut(request_for("cut", train=settings))
    used["rates"].clear()
    again = here(request_for("cut", train=settings))
    assert used["rates"] == rates[10:]  # the last checkpoint was that of update 10
    name = "adapter/adapter_model.safetensors"
    assert (again / name).read_bytes() == (straight / name).read_bytes()


def test_checkpoints_come_by_number_too(request_for, here, monkeypatch):
    saved, save = [], Checkpoints.save
    monkeypatch.setattr(Checkpoints, "save", lambda self, step, fill: (saved.append(step), save(self, step, fill)))
    here(request_for("run", train=UPDATES | {"checkpoint_seconds": 1e9, "checkpoint_steps": 5}))
    assert saved == [5, 10]


def test_most_steps_end_the_plan_and_the_schedule_ends_with_it(request_for, here, used):
    heard = []
    here(request_for("run", train=UPDATES | {"lr_scheduler_type": "linear", "max_steps": 5}), heard.append)
    assert used["rates"] == pytest.approx(rates_of("linear", 0, 5))
    assert [(step["step"], step["of"]) for step in heard] == [(number, 5) for number in range(1, 6)]


@pytest.mark.parametrize(
    ("batch", "updates"),
    [({"batch_rows": 8}, 2), ({"batch_rows": 1}, 4), ({"batch_rows": 99}, 1), ({"batch_tokens": 28}, 4), ({"batch_tokens": 57}, 2)],
    ids=str,
)
def test_batches_are_counted_in_rows_or_trained_tokens(request_for, here, batch, updates):
    """16 rows of 7 trained tokens in four groups, none of which is split."""
    steps = steps_of(here(request_for("run", train={"optimizer_steps": None, "epochs": 1} | batch)))
    assert len(steps) == updates
    assert sum(step["trained_tokens"] for step in steps) == 16 * 7


def test_without_any_of_them_there_are_four_updates():
    assert Train().steps_for(1000, 10**6) == 4
    assert Train(optimizer_steps=7).steps_for(1000, 10**6) == 7
    assert Train(batch_rows=32).steps_for(100, 10**6) == 4
    assert Train(batch_tokens=5000).steps_for(100, 20001) == 5
