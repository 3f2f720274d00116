"""Training as a process: outcome, resume after a kill, exit codes, time limit."""

import io
import json
import os
import subprocess
import sys

import pytest
import torch
from peft import PeftModel, get_peft_model_state_dict
from safetensors.torch import load_file

from clawpipe.core.config.training import Lora, Loss
from clawpipe.core.store.files import exclusive
from clawpipe.errors import BusyError, ConfigError, TrainingError
from clawpipe.learn.training.__main__ import _run
from clawpipe.learn.training.losses.policy import policy_loss
from clawpipe.learn.training.produce import run_training

pytestmark = pytest.mark.usefixtures("quick_scripts")


def bytes_of(outcome):
    return {file.name: file.read_bytes() for file in sorted((outcome / "adapter").iterdir())}


def launch(request, work):
    steps = []
    return run_training(request, work, 300, steps.append), [step["step"] for step in steps]


@pytest.mark.slow
def test_a_killed_run_goes_on_and_ends_with_the_same_bytes(request_for, tmp_path, here, monkeypatch):
    straight = here(request_for("straight"))
    request, work = request_for("killed"), tmp_path / "killed"
    monkeypatch.setenv("CLAWPIPE_KILL_AT", "train.after_step#4")
    with pytest.raises(BusyError):
        launch(request, work)
    monkeypatch.delenv("CLAWPIPE_KILL_AT")
    outcome, steps = launch(request, work)
    assert steps == [4, 5, 6]
    assert bytes_of(outcome) == bytes_of(straight)
    assert [json.loads(line)["step"] for line in (outcome / "metrics.jsonl").read_text().splitlines()] == [1, 2, 3, 4, 5, 6]
    assert sorted(path.name for path in work.iterdir()) == ["outcome", "request.json", "train.lock", "train.log"]
    assert launch(request, work) == (outcome, [])  # finished: no process is started


def test_an_outcome_names_its_base_by_digest_and_loads(request_for, tmp_path, here, tiny_llama):
    outcome = here(request_for("one"))
    assert sorted(path.name for path in outcome.iterdir()) == ["adapter", "metrics.jsonl", "summary.json"]
    config = json.loads((outcome / "adapter" / "adapter_config.json").read_text())
    assert config["base_model_name_or_path"] == "sha256:ab12"
    assert str(tmp_path) not in json.dumps(config)
    loaded = PeftModel.from_pretrained(tiny_llama(), outcome / "adapter")
    stored = load_file(outcome / "adapter" / "adapter_model.safetensors")
    held = get_peft_model_state_dict(loaded, save_embedding_layers=False)
    assert held.keys() == stored.keys()
    assert all(torch.equal(held[name], stored[name]) for name in stored)
    assert any(weight.abs().max() > 0 for name, weight in stored.items() if "lora_B" in name)


def test_a_run_starts_from_an_adapter_and_sft_uses_good_tokens(request_for, tmp_path, here):
    first = here(request_for("first", train={"optimizer_steps": 1, "epochs": 1}))
    sft = {"method": "sft", "epochs": 1}
    second = here(request_for("second", train=sft, init_adapter=str(first / "adapter")))
    summary = json.loads((second / "summary.json").read_text())
    assert (summary["samples"], summary["filtered"]) == (8, {"no_trained_tokens": 8})
    assert "ratio_mean" not in summary["last"]
    old, new = (load_file(outcome / "adapter" / "adapter_model.safetensors") for outcome in (first, second))
    moved = max(float((new[name] - old[name]).abs().max()) for name in new)
    assert 0 < moved < 0.02  # three updates from where the first run ended, not from a fresh adapter
    other = {"lora": Lora(rank=8)}
    with pytest.raises(ConfigError, match="'r': 4"):
        here(request_for("third", train=other, init_adapter=str(first / "adapter")))


def test_a_whole_run_of_ignored_log_probs_fails(request_for, tmp_path, here, monkeypatch):
    def ignore(logprobs, behaviour, *streams, **more):
        return policy_loss(logprobs, logprobs.detach(), *streams, **more)

    monkeypatch.setattr("clawpipe.learn.training.losses.batch.policy_loss", ignore)
    with pytest.raises(TrainingError, match="recorded log-probs were ignored"):
        here(request_for("ignored", train={"epochs": 1}))
    assert not (tmp_path / "ignored" / "outcome").exists()


def test_settings_without_data_fail_before_a_process_starts(request_for, tmp_path):
    config = {"loss": Loss(kl_coef=0.1)}
    with pytest.raises(ConfigError, match="kl_coef"):
        launch(request_for("kl", train=config, token_scores=()), tmp_path / "kl")


def test_the_childs_error_reaches_the_parent(request_for, tmp_path, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    with pytest.raises(ConfigError, match="cuda:5 is not among"):
        launch(request_for("gpu", device="cuda:5"), tmp_path / "gpu")


def test_memory_that_ran_out_means_try_again(request_for, tmp_path, monkeypatch):
    def run_out(*arguments):
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory")

    monkeypatch.setattr("clawpipe.learn.training.run.build_model", run_out)
    file = tmp_path / "request.json"
    file.write_text(request_for("big").model_dump_json())
    with pytest.raises(BusyError, match="even with one row per pack"):
        _run(file, io.StringIO())


def test_two_runs_in_one_directory_do_not_meet(request_for, tmp_path):
    with exclusive(tmp_path / "busy" / "train.lock", "it"), pytest.raises(BusyError, match="in use"):
        launch(request_for("busy"), tmp_path / "busy")


def test_a_run_that_takes_too_long_is_stopped(request_for, tmp_path):
    with pytest.raises(BusyError, match="did not end within"):
        run_training(request_for("late"), tmp_path / "late", 0.01, lambda facts: None)


def test_a_request_that_makes_no_sense_is_a_config_error(tmp_path):
    (tmp_path / "request.json").write_text("{}")
    ended = subprocess.run(
        [sys.executable, "-m", "clawpipe.learn.training", str(tmp_path / "request.json")], capture_output=True, check=False
    )
    assert ended.returncode == 2
    assert ended.stdout == b""
    assert b"no usable request" in ended.stderr


def test_where_it_runs_is_not_what_it_computes(request_for):
    one = request_for("one")
    assert one.identity() == request_for("two", device="cuda", threads=2).identity()
    assert one.identity() != request_for("two", seed=4).identity()
    assert one.identity() != request_for("two", train={"learning_rate": 0.1}).identity()


def test_the_parents_side_loads_no_heavy_library():
    heavy = ("torch", "transformers", "peft")
    code = f"import sys, clawpipe.learn.training.produce; print([name for name in {heavy} if name in sys.modules])"
    assert subprocess.check_output([sys.executable, "-c", code], env=dict(os.environ), text=True).strip() == "[]"
