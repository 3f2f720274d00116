"""Training as a process: outcome, resume after a kill, exit codes, time limit."""

import json
import os
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest
from peft import PeftModel
from safetensors.torch import load_file

from clawpipe.config.night import Lora, Loss, Train
from clawpipe.errors import BusyError, ConfigError, DataError
from clawpipe.store.datasets import write_parquet
from clawpipe.training.launch import run_training
from clawpipe.training.request import TrainRequest

CONFIG = Train(
    updates=3, epochs=2, pack_tokens=64, learning_rate=1e-3, checkpoint_seconds=1e-6, lora=Lora(rank=4, alpha=8, dropout=0.1)
)


@pytest.fixture
def request_for(tmp_path, tiny_llama):
    """request_for(name, ...): a request on a tiny model and 16 two-turn rows, with its output in a directory of that name."""
    tiny_llama().save_pretrained(tmp_path / "base")
    generator = np.random.default_rng(0)
    mask = [False] * 10 + [True] * 4 + [False] * 2 + [True] * 3
    rows = [
        {
            "group_id": f"g{group}",
            "token_ids": [*range(8), group, 9, *generator.integers(0, 3, 9).tolist()],
            "loss_mask": mask,
            "logprobs": [-5.7 if sampled else 0.0 for sampled in mask],
            "advantages": [(1.0 if rollout % 2 else -1.0) * sampled for sampled in mask],
            "temperature": 0.8,
            "weight": 1.0,
        }
        for group in range(4)
        for rollout in range(4)
    ]
    write_parquet(pa.Table.from_pylist(rows), tmp_path / "samples.parquet")

    def make(name, **changes):
        facts = {
            "samples": [str(tmp_path / "samples.parquet")],
            "base": str(tmp_path / "base"),
            "base_digest": "ab12",
            "config": CONFIG,
            "temperature": 0.8,
            "seed": 3,
            "device": "cpu",
            "threads": 1,
            "output": str(tmp_path / name / "outcome"),
        }
        (tmp_path / name).mkdir(exist_ok=True)
        return TrainRequest(**(facts | changes))

    return make


def bytes_of(outcome):
    return {file.name: file.read_bytes() for file in sorted((outcome / "adapter").iterdir())}


def launch(request, tmp_path, name, **more):
    steps = []
    return run_training(request, tmp_path / name, 300, steps.append, **more), [step["step"] for step in steps]


@pytest.mark.slow
def test_a_killed_run_goes_on_and_ends_with_the_same_bytes(request_for, tmp_path, tiny_llama, monkeypatch):
    straight, steps = launch(request_for("straight"), tmp_path, "straight")
    assert steps == [1, 2, 3, 4, 5, 6]
    assert sorted(path.name for path in straight.iterdir()) == ["adapter", "metrics.jsonl", "summary.json"]
    assert [json.loads(line)["step"] for line in (straight / "metrics.jsonl").read_text().splitlines()] == steps
    config = json.loads((straight / "adapter" / "adapter_config.json").read_text())
    assert config["base_model_name_or_path"] == "sha256:ab12"
    loaded = PeftModel.from_pretrained(tiny_llama(), straight / "adapter")
    assert any(weight.abs().max() > 0 for name, weight in loaded.named_parameters() if "lora_B" in name)

    request = request_for("killed")
    monkeypatch.setenv("CLAWPIPE_KILL_AT", "train.after_step#4")
    with pytest.raises(BusyError):
        launch(request, tmp_path, "killed")
    monkeypatch.delenv("CLAWPIPE_KILL_AT")
    killed, steps = launch(request, tmp_path, "killed")
    assert steps == [4, 5, 6]
    assert bytes_of(killed) == bytes_of(straight)
    assert not list(tmp_path.glob("killed/**/*checkpoint*"))

    again, steps = launch(request, tmp_path, "killed")
    assert (again, steps) == (killed, [])  # finished: no process is started


@pytest.mark.slow
def test_a_run_goes_on_from_an_adapter_and_sft_learns_good_tokens_only(request_for, tmp_path):
    first, _ = launch(request_for("first", config=CONFIG.model_copy(update={"updates": 1, "epochs": 1})), tmp_path, "first")
    sft = CONFIG.model_copy(update={"method": "sft", "epochs": 1})
    second, _ = launch(request_for("second", config=sft, init_adapter=str(first / "adapter")), tmp_path, "second")
    summary = json.loads((second / "summary.json").read_text())
    assert (summary["samples"], summary["set_aside"]) == (8, {"no_trained_tokens": 8})
    assert "ratio_mean" not in summary["last"]
    old, new = (load_file(outcome / "adapter" / "adapter_model.safetensors") for outcome in (first, second))
    assert old.keys() == new.keys()
    moved = max(float((new[name] - old[name]).abs().max()) for name in new)
    assert 0 < moved < 0.02  # three updates from where the first run ended, not from a fresh adapter


def test_settings_without_their_data_fail_before_a_process_is_started(request_for, tmp_path):
    config = CONFIG.model_copy(update={"loss": Loss(kl_coef=0.1)})
    with pytest.raises(ConfigError, match="kl_coef"):
        launch(request_for("kl", config=config), tmp_path, "kl")


@pytest.mark.slow
def test_the_childs_error_reaches_the_parent(request_for, tmp_path):
    write_parquet(pa.table({"group_id": ["g"]}), tmp_path / "other.parquet")
    with pytest.raises(DataError, match="cannot be read"):
        launch(request_for("bad", samples=[str(tmp_path / "other.parquet")]), tmp_path, "bad")


def test_a_run_that_takes_too_long_is_stopped(request_for, tmp_path):
    with pytest.raises(BusyError, match="did not end within"):
        run_training(request_for("late"), tmp_path / "late", 0.01, lambda facts: None)


def test_a_request_that_makes_no_sense_is_a_config_error(tmp_path):
    (tmp_path / "request.json").write_text("{}")
    ended = subprocess.run(
        [sys.executable, "-m", "clawpipe.training", str(tmp_path / "request.json")], capture_output=True, check=False
    )
    assert ended.returncode == 2
    assert ended.stdout == b""
    assert b"no usable request" in ended.stderr


def test_where_it_runs_is_not_what_it_computes(request_for):
    one = request_for("one")
    assert one.identity() == request_for("two", device="cuda", threads=2).identity()
    assert one.identity() != request_for("two", seed=4).identity()
    assert one.identity() != request_for("two", config=CONFIG.model_copy(update={"learning_rate": 0.1})).identity()


def test_the_parents_side_loads_no_heavy_library():
    code = (
        "import sys, clawpipe.training.launch; print([name for name in ('torch', 'transformers', 'peft') if name in sys.modules])"
    )
    assert subprocess.check_output([sys.executable, "-c", code], env=dict(os.environ), text=True).strip() == "[]"
