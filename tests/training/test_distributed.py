"""Several processes behave like one: the same steps, checkpoints and errors."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.torch import load_file

from clawpipe.errors import BusyError, ConfigError, DataError
from clawpipe.learn.training.process.collectives import pad_plan
from clawpipe.learn.training.produce import run_training

PLAIN = {"lora": {"rank": 4, "alpha": 8, "dropout": 0.0}}  # each process draws its own dropout
FSDP, ZERO = (str(Path(f"configs/accelerate/{name}.yaml").resolve()) for name in ("fsdp2", "zero3"))
FACTS = ("loss", "grad_norm", "ratio_mean", "ratio_max", "approx_kl", "entropy", "lp", "trained_tokens", "tree_tokens")


def launch(request, work):
    steps = []
    return run_training(request, work, 300, steps.append), steps


def weights(outcome, name="adapter/adapter_model"):
    return load_file(outcome / f"{name}.safetensors")


def assert_same_updates(found, wanted):
    assert [step["step"] for step in found] == [step["step"] for step in wanted]
    for one, other in zip(found, wanted, strict=True):
        for name in FACTS:
            assert one[name] == pytest.approx(other[name], rel=1e-5, abs=1e-6), (one["step"], name)


def assert_same_weights(found, wanted, tolerance=1e-5):
    assert found.keys() == wanted.keys()
    assert max(float((found[name] - wanted[name]).abs().max()) for name in wanted) < tolerance


@pytest.fixture
def alone(request_for, here):
    """alone(**changes): the outcome and the updates of one process."""

    def run(**changes):
        steps = []
        return here(request_for("alone", **changes), steps.append), steps

    return run


@pytest.mark.slow
@pytest.mark.usefixtures("quick_scripts")
def test_two_processes_train_like_one_and_resume_after_a_kill(alone, request_for, tmp_path, monkeypatch, cold):
    """They go on in processes of their own; those of the other tests are forks."""
    straight, wanted = alone(train=PLAIN)
    request, work = request_for("two", train=PLAIN, processes=2), tmp_path / "two"
    monkeypatch.setenv("CLAWPIPE_KILL_AT", "train.after_step#4")
    with pytest.raises(BusyError):
        launch(request, work)
    assert {file.name for file in sorted((work / "checkpoints").iterdir())[-1].iterdir()} >= {"weights.safetensors"}
    monkeypatch.delenv("CLAWPIPE_KILL_AT")
    with cold():
        outcome, steps = launch(request, work)
    assert [step["step"] for step in steps] == [4, 5, 6]
    metrics = [json.loads(line) for line in (outcome / "metrics.jsonl").read_text().splitlines()]
    assert_same_updates(metrics, wanted)
    assert_same_weights(weights(outcome), weights(straight))
    assert sorted(path.name for path in work.iterdir()) == ["outcome", "request.json", "train.lock", "train.log"]


@pytest.mark.slow
@pytest.mark.usefixtures("quick_scripts")
def test_sharded_weights_train_the_same_and_resume(alone, request_for, tmp_path, monkeypatch):
    """FSDP2 on two processes; its checkpoint is taken up by two processes, and by one alone."""
    straight, wanted = alone(train=PLAIN)
    request, work = request_for("sharded", train=PLAIN, processes=2, accelerate=FSDP), tmp_path / "sharded"
    monkeypatch.setenv("CLAWPIPE_KILL_AT", "train.after_step#4")
    with pytest.raises(BusyError):
        launch(request, work)
    monkeypatch.delenv("CLAWPIPE_KILL_AT")
    checkpoint = work / "checkpoints" / "checkpoint-3"
    assert shards_of(checkpoint, "weights") == [(2, 64), (2, 64)]  # rank 4, cut in two
    assert len(shards_of(checkpoint, "optimizer")) == 2
    shutil.copytree(work, tmp_path / "one", ignore=shutil.ignore_patterns("train.l*"))
    outcome, steps = launch(request, work)
    assert [step["step"] for step in steps] == [4, 5, 6]
    metrics = [json.loads(line) for line in (outcome / "metrics.jsonl").read_text().splitlines()]
    assert_same_updates(metrics, wanted)
    assert_same_weights(weights(outcome), weights(straight))
    again, steps = launch(request_for("one", train=PLAIN), tmp_path / "one")
    assert [step["step"] for step in steps] == [4, 5, 6]
    assert_same_weights(weights(again), weights(straight))


def shards_of(checkpoint, kind):
    """Shapes of the first matrix of rank 4, file by file."""
    shapes = []
    for file in sorted(checkpoint.glob(f"{kind}-*-of-*.safetensors")):
        with safe_open(file, framework="pt") as tensors:
            shapes.append(next(tuple(tensors.get_tensor(name).shape) for name in sorted(tensors.keys()) if "q_proj.lora_A" in name))
    return shapes


@pytest.mark.slow
@pytest.mark.usefixtures("quick_scripts")
def test_every_weight_and_a_critic_in_two_processes(alone, request_for, tmp_path):
    train = {"adapter": "full", "method": "ppo", "epochs": 1}
    straight, wanted = alone(train=train)
    for name, accelerate in (("replicated", None), ("cut", FSDP)):
        outcome, steps = launch(request_for(name, train=train, processes=2, accelerate=accelerate), tmp_path / name)
        assert_same_updates(steps, wanted)
        for file in ("model/model", "model/value_head"):
            assert_same_weights(weights(outcome, file), weights(straight, file))


@pytest.mark.slow
@pytest.mark.usefixtures("quick_scripts")
def test_what_went_wrong_in_a_process_reaches_the_parent(request_for, tmp_path):
    (tmp_path / "nothing.parquet").write_bytes(b"")
    with pytest.raises(DataError, match="cannot be read") as told:
        launch(request_for("bad", processes=2, samples=[str(tmp_path / "nothing.parquet")]), tmp_path / "bad")
    assert told.value.fix


@pytest.mark.slow
@pytest.mark.usefixtures("quick_scripts")
def test_accelerate_that_starts_too_few_processes_is_noticed(request_for, tmp_path):
    config = tmp_path / "cpu.yaml"
    config.write_text("compute_environment: LOCAL_MACHINE\ndistributed_type: MULTI_CPU\nnum_processes: 2\nuse_cpu: true\n")
    with pytest.raises(ConfigError, match="2 training processes were asked for, and 1 run"):
        launch(request_for("few", processes=2, accelerate=str(config)), tmp_path / "few")


def test_fewer_processes_than_asked_for_are_noticed(request_for, tmp_path):
    file = tmp_path / "request.json"
    file.write_text(request_for("two", processes=2).model_dump_json())
    ended = subprocess.run([sys.executable, "-m", "clawpipe.learn.training", str(file)], capture_output=True, check=False)
    assert ended.returncode == 2
    assert b"2 training processes were asked for, and 1 run" in ended.stderr


def test_how_many_processes_is_not_what_is_computed(request_for):
    one = request_for("one")
    assert one.identity() == request_for("one", processes=4, accelerate=FSDP).identity()


@given(st.lists(st.lists(st.lists(st.integers(0, 9), min_size=1), max_size=5), min_size=1), st.integers(1, 4))
def test_packs_are_dealt_evenly_and_none_is_lost(plan, processes):
    sharded = pad_plan(plan, processes)
    for before, after in zip(plan, sharded, strict=True):
        assert len(after) % processes == 0
        assert len(after) - len(before) < processes
        assert [pack for pack in after if pack] == before


@pytest.mark.slow
@pytest.mark.usefixtures("quick_scripts")
def test_zero_3_trains_the_same(alone, request_for, tmp_path):
    """Only where DeepSpeed is installed."""
    pytest.importorskip("deepspeed")
    straight, wanted = alone(train=PLAIN)
    outcome, steps = launch(request_for("zero", train=PLAIN, processes=2, accelerate=ZERO), tmp_path / "zero")
    assert_same_updates(steps, wanted)
    assert_same_weights(weights(outcome), weights(straight))


def test_nothing_is_left_of_a_process_group():
    assert not torch.distributed.is_initialized()
