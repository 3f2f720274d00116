"""Early ends and restarts of a run, and that they do not change its optimizer steps."""

import json
import shutil

import pytest
import torch
from safetensors.torch import load_file

from clawpipe.core.config.training import Lora
from clawpipe.errors import BusyError, DataError
from clawpipe.learn.children import memory
from clawpipe.learn.training import produce as launch
from clawpipe.learn.training.request import is_finished
from clawpipe.learn.training.trainers.base import PackedTrainer
from clawpipe.learn.training.trainers.early_stopping import Limits, best_step, hold_out, stop_reason

STEADY = {"lora": Lora(rank=4, alpha=8)}  # no dropout, whose draws depend on the packs


def weights_of(outcome):
    return torch.cat([tensor.flatten() for tensor in load_file(outcome / "adapter" / "adapter_model.safetensors").values()])


def summary_of(outcome):
    return json.loads((outcome / "summary.json").read_text())


def steps_of(outcome):
    return [json.loads(line) for line in (outcome / "metrics.jsonl").read_text().splitlines()]


def test_what_ends_a_run():
    steps = [{"approx_kl": 0.1}, {"approx_kl": 0.3}]
    assert stop_reason(steps, Limits()) is None
    assert stop_reason(steps[:1], Limits(max_kl=0.2)) is None
    assert stop_reason(steps, Limits(max_kl=0.2)) == "approx_kl 0.3 exceeds train.max_kl 0.2 after optimizer step 2"
    losses = [{"validation_loss": loss} for loss in (3.0, 1.0, 2.0, 1.0, 5.0)]
    assert [stop_reason(losses[:end], Limits(patience=2)) is not None for end in range(1, 6)] == [False, False, False, True, True]
    assert best_step(losses) == 2
    assert best_step([{}, {}]) is None


def test_a_run_that_drifts_too_far_ends_early_and_says_so(request_for, here, cut):
    settings = {"learning_rate": 3e-2, "max_kl": 0.05}
    outcome = here(request_for("drift", train=settings))
    steps = steps_of(outcome)
    assert 1 < len(steps) < 6
    assert steps[-1]["approx_kl"] > 0.05 >= max(step["approx_kl"] for step in steps[:-1])
    assert summary_of(outcome)["stopped"].endswith(f"exceeds train.max_kl 0.05 after optimizer step {len(steps)}")
    cut(request_for("again", train=settings))
    again = here(request_for("again", train=settings))
    assert len(steps_of(again)) == len(steps)
    assert torch.equal(weights_of(again), weights_of(outcome))


def test_groups_are_kept_out_whole_and_by_seed(make_sample):
    rows = [make_sample([1, 2], [1], group=f"g{index % 5}") for index in range(20)]
    trained, kept = hold_out(rows, 0.4, seed=1)
    assert len({row.group for row in kept}) == 2
    assert not {row.group for row in kept} & {row.group for row in trained}
    assert len(trained) + len(kept) == 20
    assert [row.group for row in hold_out(rows, 0.4, seed=1)[1]] == [row.group for row in kept]
    assert len({tuple(sorted({row.group for row in hold_out(rows, 0.4, seed)[1]})) for seed in range(20)}) > 3
    with pytest.raises(DataError, match="single group"):
        hold_out([make_sample([1, 2], [1])], 0.5, seed=0)


@pytest.mark.slow
def test_the_weights_of_the_best_validation_loss_are_kept(request_for, here, cut):
    """With a high rate the held-out loss soon rises; a run interrupted at its end gives the same weights."""
    settings = STEADY | {"method": "sft", "learning_rate": 0.1, "validation": 0.25, "patience": 3, "epochs": 5}
    outcome = here(request_for("early", train=settings))
    losses = [step["validation_loss"] for step in steps_of(outcome)]
    best = losses.index(min(losses)) + 1
    assert (summary_of(outcome)["samples"], summary_of(outcome)["filtered"]) == (
        6,
        {"no_trained_tokens": 8, "kept_for_validation": 2},
    )
    assert len(losses) == best + 3 < 15
    assert summary_of(outcome)["stopped"] == f"no better validation loss in 3 optimizer steps after step {best}"
    work = cut(request_for("again", train=settings))
    shutil.rmtree(work / "checkpoints" / f"checkpoint-{len(losses) - 1}")  # the one of the last update was not written
    again = here(request_for("again", train=settings))
    assert torch.equal(weights_of(again), weights_of(outcome))
    endless = here(request_for("endless", train=settings | {"patience": 100}))
    assert torch.equal(weights_of(endless), weights_of(outcome))  # however long it goes on after the best update


@pytest.mark.slow
def test_recomputing_activations_changes_nothing(request_for, here):
    plain, frugal = (
        here(request_for(str(flag), train=STEADY | {"gradient_checkpointing": flag, "epochs": 1})) for flag in (False, True)
    )
    assert (weights_of(plain) - weights_of(frugal)).abs().max() < 1e-6


@pytest.mark.slow
def test_out_of_memory_halves_the_packs_and_keeps_the_step(request_for, here, monkeypatch, capsys):
    settings = STEADY | {"pack_tokens": 96}
    whole = here(request_for("whole", train=settings))
    calls, compute = [], PackedTrainer.compute_loss

    def run_out(self, model, inputs, **options):
        calls.append(inputs["input_ids"].numel())
        if len(calls) == 6:  # in the middle of an update
            raise RuntimeError("[enforce fail at alloc_cpu.cpp] DefaultCPUAllocator: can't allocate memory")
        return compute(self, model, inputs, **options)

    monkeypatch.setattr(PackedTrainer, "compute_loss", run_out)
    halved = here(request_for("halved", train=settings))
    assert max(calls[:6]) > 48 >= max(calls[6:])
    assert "memory ran out with packs of 96 tokens" in capsys.readouterr().err
    assert [step["step"] for step in steps_of(halved)] == [1, 2, 3, 4, 5, 6]
    assert (weights_of(whole) - weights_of(halved)).abs().max() < 1e-5
    assert [step["loss"] for step in steps_of(halved)] == pytest.approx([step["loss"] for step in steps_of(whole)], rel=1e-4)


@pytest.mark.slow
def test_smaller_packs_are_the_same_run(request_for, here):
    one, smaller = request_for("one", train=STEADY), request_for("smaller", train=STEADY, shrink=1)
    assert one.identity() == smaller.identity()
    assert (weights_of(here(one)) - weights_of(here(smaller))).abs().max() < 1e-5


def test_a_child_killed_for_memory_restarts_with_smaller_packs(request_for, tmp_path, monkeypatch):
    """The kernel's count of such kills is a file here, written by the test."""
    count, shrinks = tmp_path / "vmstat", []

    def write(kills):
        count.write_text(f"nr_free_pages 7\noom_kill {kills}\n")

    def killed(command, *arguments, **options):
        request = json.loads(launch.Path(command[-1]).read_text())
        shrinks.append(request["shrink"])
        write(len(shrinks))
        raise launch.KilledError("the trainer ended with code -9")

    write(0)
    monkeypatch.setattr(memory, "_VMSTAT", count)
    monkeypatch.setattr(launch, "run_child", killed)
    with pytest.raises(BusyError, match="code -9"):
        launch.run_training(request_for("hungry"), tmp_path / "hungry", 60, lambda facts: None)
    assert shrinks == [0, 1, 2]

    def ended_by_somebody(*arguments, **options):
        shrinks.append(None)
        raise launch.KilledError("the trainer ended with code -9")

    monkeypatch.setattr(launch, "run_child", ended_by_somebody)
    with pytest.raises(BusyError):
        launch.run_training(request_for("hungry"), tmp_path / "hungry", 60, lambda facts: None)
    assert shrinks == [0, 1, 2, None]  # goes on just as it was, when it is asked to


def test_a_finished_run_is_whole_or_it_is_not_finished(request_for, here):
    request = request_for("done", train={"optimizer_steps": 1, "epochs": 1})
    outcome = here(request)
    assert is_finished(request)
    (outcome / "adapter" / "adapter_config.json").write_text("{}")
    assert not is_finished(request)
