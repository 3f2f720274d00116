"""Two rounds of a night share one optimizer: moments, step count, schedule and reference."""

import json
from functools import partial

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from clawpipe.core.config.training import Lora
from clawpipe.core.store.refs import OptimizerRef
from clawpipe.errors import BusyError, ConfigError
from clawpipe.learn.training.course import Course
from clawpipe.learn.training.data.samples import Readable, load_samples
from clawpipe.learn.training.model.build import build_model
from clawpipe.learn.training.model.likelihoods import likelihoods
from clawpipe.learn.training.model.reference import reference_model
from clawpipe.learn.training.model.scoring_head import base_of
from clawpipe.learn.training.produce import run_training
from clawpipe.learn.training.request import Reference
from clawpipe.learn.training.run import score_rows
from clawpipe.learn.training.trainers.base import PackedTrainer
from clawpipe.learn.training.trainers.kto import training_job
from clawpipe.model.policy.version import base_ref

STEADY = {"lora": Lora(rank=4, alpha=8), "epochs": 1, "optimizer_steps": 3}
METHODS = ["sft", "grpo", "ppo", "kto", "opd", "combine"]
WHOLE_CRITIC = {"method": "ppo", "adapter": "full"}
NIGHT = Course(seed=1, start="s", rounds=2)
SECOND = NIGHT.model_copy(update={"number": 1})


def rates_of(outcome):
    return [json.loads(line)["learning_rate"] for line in (outcome / "metrics.jsonl").read_text().splitlines()]


def weights(outcome, directory="adapter"):
    file = outcome / directory / ("adapter_model.safetensors" if directory == "adapter" else "model.safetensors")
    return load_file(file)


@pytest.fixture
def two_rounds(request_for, here):
    """two_rounds(train, name, ...): the requests of a first and a second round, the first of which has been trained."""

    def run(train, name="night", course=NIGHT, **changes):
        first = request_for(f"{name}-1", train=STEADY | train, course=course, **changes)
        outcome = here(first)
        whole = {"base": str(first.weights)} if train.get("adapter") == "full" else {"init_adapter": str(first.weights)}
        later = course.model_copy(update={"number": 1})
        second = partial(request_for, train=STEADY | train, course=later, **(changes | whole))
        return outcome, second

    return run


@pytest.fixture
def first_moments(monkeypatch):
    """The optimizer's state before each round's first step, copied."""
    found, clip = [], PackedTrainer._clip_grad_norm

    def watch(trainer, model):
        if trainer.state.global_step == 0:
            states = trainer.optimizer.state.values()
            found.append([{name: value.clone() for name, value in state.items()} for state in states])
        return clip(trainer, model)

    monkeypatch.setattr(PackedTrainer, "_clip_grad_norm", watch)
    return found


@pytest.mark.parametrize(
    "train", [*({"method": name} for name in METHODS), {"adapter": "full"}, {"method": "ppo", "adapter": "full"}]
)
def test_a_round_begins_with_the_moments_of_the_one_before(two_rounds, here, first_moments, train):
    outcome, second = two_rounds(train)
    stored = load_file(outcome / "optimizer" / "moments.safetensors")
    assert json.loads((outcome / "optimizer" / "state.json").read_text()) == {"steps": 3}
    assert ("value_head.weight" in str(stored.keys())) == (train.get("method") == "ppo")
    here(second("second", optimizer=str(outcome / "optimizer")))
    fresh, taken = first_moments
    assert fresh == []
    assert {float(state["step"]) for state in taken} == {3.0}
    found = sorted(float(state["exp_avg_sq"].sum()) for state in taken)
    assert found == sorted(float(value.sum()) for name, value in stored.items() if name.endswith("exp_avg_sq"))
    assert max(found) > 0


def test_two_rounds_step_as_torchs_adamw_does_over_both(two_rounds, here, monkeypatch):
    """The gradients that the rounds saw, given to one AdamW of torch, lead to the same weights."""
    gradients, clip = [], PackedTrainer._clip_grad_norm

    def watch(trainer, model):
        norm = clip(trainer, model)
        trained = dict(trainer.model.named_parameters())
        gradients.append({name: weight.grad.clone() for name, weight in trained.items() if weight.requires_grad})
        if len(gradients) == 1:
            gradients.insert(0, {name: weight.detach().clone() for name, weight in trained.items() if weight.requires_grad})
        return norm

    monkeypatch.setattr(PackedTrainer, "_clip_grad_norm", watch)
    outcome, second = two_rounds({"lr_scheduler_type": "linear"})
    ended = weights(here(second("second", optimizer=str(outcome / "optimizer"))))
    start, *gradients = gradients
    plain = {name: torch.nn.Parameter(weight) for name, weight in start.items()}
    oracle = torch.optim.AdamW(plain.values(), lr=1e-3, weight_decay=0.0)
    for step, found in enumerate(gradients):
        oracle.param_groups[0]["lr"] = 1e-3 * (1 - step / 6)
        for name, gradient in found.items():
            plain[name].grad = gradient
        oracle.step()
    assert len(gradients) == 6
    for name, weight in plain.items():
        torch.testing.assert_close(ended[name.replace(".default", "")], weight.detach(), rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize(
    ("train", "expected"),
    [
        ({}, [1.0] * 6),
        ({"lr_scheduler_type": "linear"}, [1, 5 / 6, 4 / 6, 3 / 6, 2 / 6, 1 / 6]),
        ({"warmup_steps": 4}, [0.2, 0.4, 0.6, 0.8, 1, 1]),
        ({"lr_scheduler_type": "linear", "warmup_ratio": 0.5}, [0.25, 0.5, 0.75, 1, 2 / 3, 1 / 3]),
    ],
    ids=str,
)
def test_the_schedule_runs_over_the_nights_steps(two_rounds, here, train, expected):
    outcome, second = two_rounds(train)
    later = here(second("second", optimizer=str(outcome / "optimizer")))
    assert [*rates_of(outcome), *rates_of(later)] == pytest.approx([1e-3 * factor for factor in expected])
    assert not (later / "optimizer").exists()  # no round follows


def test_a_longer_round_does_not_raise_the_rate_again(two_rounds, here):
    falls = {"lr_scheduler_type": "linear", "optimizer_steps": 2}
    outcome, second = two_rounds(falls)
    later = here(second("second", train=STEADY | falls | {"optimizer_steps": 4}, optimizer=str(outcome / "optimizer")))
    expected = [1, 3 / 4, *(1 / 2 - step / 8 for step in range(4))]
    assert [*rates_of(outcome), *rates_of(later)] == pytest.approx([1e-3 * factor for factor in expected])


def test_a_round_without_rows_shortens_the_schedule_only(two_rounds, here):
    """Of three rounds the second gives no rows: the third ends at the schedule's end."""
    night = Course(seed=1, start="s", rounds=3)
    outcome, second = two_rounds({"lr_scheduler_type": "linear"}, course=night)
    third = second("third", optimizer=str(outcome / "optimizer")).model_copy(
        update={"course": night.model_copy(update={"number": 2})}
    )
    assert rates_of(outcome) == pytest.approx([1e-3 * (1 - step / 9) for step in range(3)])
    assert rates_of(here(third)) == pytest.approx([1e-3 * (1 - step / 9) for step in range(6, 9)])


def test_a_run_that_stands_alone_leaves_no_moments(request_for, here):
    outcome = here(request_for("alone"))
    assert sorted(path.name for path in outcome.iterdir()) == ["adapter", "metrics.jsonl", "summary.json"]


def test_a_later_round_cut_between_checkpoints_ends_the_same(two_rounds, here, cut):
    outcome, second = two_rounds({"epochs": 2, "lr_scheduler_type": "cosine", "checkpoint_seconds": 1e9, "checkpoint_steps": 4})
    taken = {"optimizer": str(outcome / "optimizer")}
    straight = here(second("straight", **taken))
    cut(second("cut", **taken))
    again = here(second("cut", **taken))
    assert weights(again).keys() == weights(straight).keys()
    assert (again / "adapter/adapter_model.safetensors").read_bytes() == (
        straight / "adapter/adapter_model.safetensors"
    ).read_bytes()


@pytest.mark.slow
@pytest.mark.usefixtures("quick_scripts")
def test_a_killed_later_round_ends_with_the_same_bytes(two_rounds, here, monkeypatch):
    night = Course(seed=1, start="s", rounds=3)
    outcome, second = two_rounds({}, course=night)
    taken = {"optimizer": str(outcome / "optimizer")}
    straight = here(second("straight", **taken))
    request = second("killed", **taken)
    work = (outcome.parent.parent) / "killed"
    monkeypatch.setenv("CLAWPIPE_KILL_AT", "train.after_step#2")
    with pytest.raises(BusyError):
        run_training(request, work, 300, lambda facts: None)
    monkeypatch.delenv("CLAWPIPE_KILL_AT")
    again = run_training(request, work, 300, lambda facts: None)
    for name in ("adapter/adapter_model.safetensors", "optimizer/moments.safetensors", "optimizer/state.json"):
        assert (again / name).read_bytes() == (straight / name).read_bytes()


@pytest.mark.slow
@pytest.mark.usefixtures("quick_scripts")
def test_two_processes_carry_the_moments_of_one(two_rounds, here):
    outcome, second = two_rounds({}, course=Course(seed=1, start="s", rounds=3))
    taken = {"optimizer": str(outcome / "optimizer")}
    alone = here(second("one", **taken))
    request = second("two", **taken, processes=2)
    both = run_training(request, outcome.parent.parent / "two", 300, lambda facts: None)
    for file in ("adapter/adapter_model", "optimizer/moments"):
        one, two = (load_file(found / f"{file}.safetensors") for found in (alone, both))
        assert one.keys() == two.keys()
        for name in one:
            torch.testing.assert_close(two[name], one[name], rtol=1e-4, atol=1e-6)


def test_moments_of_another_adapter_are_refused(two_rounds, request_for, here):
    outcome, _ = two_rounds({})
    other = request_for("other", train=STEADY | {"lora": Lora(rank=8)}, course=SECOND, optimizer=str(outcome / "optimizer"))
    with pytest.raises(ConfigError, match="does not fit the trained weights"):
        here(other)


POLICY = base_ref("random", "b" * 64, "pythonic", "float32")


@pytest.mark.parametrize(
    "other", [{"seed": 2}, {"start": "another champion"}, {"rounds": 5}], ids=["another label", "another start", "another plan"]
)
def test_moments_of_another_night_are_refused(other):
    kept = OptimizerRef(name="optimizer", digest="d", night=NIGHT.night, policy_version=POLICY.policy_version)
    SECOND.require(kept, POLICY)
    with pytest.raises(ConfigError, match="another night"):
        SECOND.model_copy(update=other).require(kept, POLICY)
    with pytest.raises(ConfigError, match="belongs to policy"):
        SECOND.require(kept.model_copy(update={"policy_version": "other"}), POLICY)


def test_a_narrow_weight_goes_on_from_its_master(two_rounds, here, first_moments):
    outcome, second = two_rounds({"adapter": "full"}, dtype="bfloat16")
    kept = load_file(outcome / "optimizer" / "moments.safetensors")
    masters = {name: value for name, value in kept.items() if name.endswith("|master")}
    assert masters
    here(second("second", optimizer=str(outcome / "optimizer")))
    taken = sorted(float(state["master"].double().sum()) for state in first_moments[1])
    assert taken == sorted(float(value.double().sum()) for value in masters.values())
    save_file(kept | {name: value + 1 for name, value in masters.items()}, outcome / "optimizer" / "moments.safetensors")
    here(second("third", optimizer=str(outcome / "optimizer")))
    held = sorted(float(value.double().sum()) for value in weights(outcome, "model").values())
    assert sorted(float(state["master"].double().sum()) for state in first_moments[2]) == held  # not of the weights: made anew


@pytest.mark.parametrize("adapter", [True, False], ids=["champion", "base"])
@pytest.mark.parametrize("kind", ["lora", "full"])
def test_the_reference_is_the_nights_start(two_rounds, here, kind, adapter):
    """And the policy that is trained is itself again afterwards."""
    start, _ = two_rounds({}, name="earlier", seed=9)
    reference = Reference(base=str(start.parent.parent / "base"), adapter=str(start / "adapter") if adapter else None, version="v")
    _, second = two_rounds({"adapter": kind})
    request = second("second").model_copy(update={"reference": reference})
    rows, _ = load_samples(request.samples, request.config, 0.8, request.token_scores, Readable(300))
    model = build_model(request)
    of = lambda asked: [row.logprobs for row in likelihoods(base_of(asked.eval()), rows, 64)]  # noqa: E731
    before = of(model)
    with reference_model(model, request) as found:
        held = of(found)
    wanted = build_model(request.model_copy(update={"base": reference.base, "init_adapter": reference.adapter}))
    for ours, theirs in zip(held, of(wanted), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-5)
    for ours, theirs in zip(of(model), before, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    assert max(float(np.abs(one - two).max()) for one, two in zip(held, before, strict=True)) > 1e-4


def test_kto_compares_mismatched_rows_with_the_nights_start(two_rounds):
    """Their log-ratios were 0 in each round's first step, as if the round's own start were the reference."""
    outcome, second = two_rounds({"method": "kto"})
    reference = Reference(base=str(outcome.parent.parent / "base"), adapter=None, version="v")
    request = second("second").model_copy(update={"reference": reference})
    job = training_job(request)
    rows = job.complete(job.rows, partial(score_rows, request, build_model(request)))
    start, own = (build_model(request.model_copy(update={"init_adapter": each})).eval() for each in (None, request.init_adapter))
    known, moved = ([row.logprobs for row in likelihoods(base_of(each), job.rows[1::2], 64)] for each in (start, own))
    for row, one, other in zip(rows[1::2], known, moved, strict=True):
        np.testing.assert_allclose(row.streams["reference"], one, atol=1e-5)
        assert np.abs(one - other).max() > 1e-4


def test_a_reference_and_moments_are_in_the_identity(two_rounds):
    outcome, second = two_rounds({})
    plain = second("plain")
    assert plain.identity() != second("taken", optimizer=str(outcome / "optimizer")).identity()
    one, two = (Reference(base=plain.base, adapter=None, version=version) for version in ("v", "w"))
    assert plain.model_copy(update={"reference": one}).identity() != plain.model_copy(update={"reference": two}).identity()
