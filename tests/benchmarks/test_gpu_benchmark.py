"""The GPU benchmark on a tiny shape and a CPU: that it stands where no GPU is lent."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from clawpipe.model.planning.architecture import architecture_of

ROOT = Path(__file__).parents[2]


@pytest.fixture
def gpu(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return importlib.import_module("gpu")


@pytest.mark.usefixtures("quick_scripts")
def test_a_config_trains_and_generates_with_random_weights():
    command = [sys.executable, "benchmarks/gpu.py", "--smoke", "--json", "--only", "7b-16gb"]
    done = subprocess.run(command, cwd=ROOT, env=os.environ | {"OMP_NUM_THREADS": "1"}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    result = json.loads(done.stdout)
    assert {"device", "driver", "cuda", "libraries"} <= result["conditions"].keys()
    assert result["goal"] == {"mfu": 0.35}
    found = [part for check in ("bfloat16", "nf4") for part in result["checks"][check].values()]
    assert [part["part"] for part in found] == ["engine", "trainer"] * 2
    assert all(part["largest"] <= part["allowed"]["largest"] for part in found)
    figures = result["configs"]["7b-16gb"]
    assert "error" not in figures["training"], figures
    assert figures["training"]["packs"] == [127, 127]  # the last token of a row predicts nothing
    assert figures["training"]["flops"] > 0
    assert "mfu" not in figures["training"]  # of a CPU there is no peak to refer to
    assert (figures["rollouts"]["rows"], figures["rollouts"]["sampled_tokens"]) == (2, 16)


@pytest.mark.parametrize("name", ["random", "smollm2-135m", "qwen/qwen3-0.6b"])
def test_random_weights_have_the_shape_that_is_planned_for(gpu, tmp_path, name, monkeypatch):
    """Counted without holding them: matrices of a shape are one."""
    model = architecture_of(name)
    gpu.llama_of(model).save_pretrained(tmp_path)
    with torch.device("meta"):
        made = gpu.LlamaForCausalLM(gpu.llama_of(model))
    assert made.num_parameters() == model.parameters
    if name == "random":
        loaded = gpu.RandomWeights.from_pretrained(tmp_path, dtype=torch.bfloat16)
        assert {(key, value.shape, value.dtype) for key, value in loaded.state_dict().items()} == {
            (key, value.shape, torch.bfloat16) for key, value in made.state_dict().items()
        }
        assert 0.015 < float(loaded.model.layers[1].mlp.up_proj.weight.detach().float().std()) < 0.025


def test_without_a_gpu_it_says_so(gpu, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["gpu.py"])
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert gpu.main() == 1
    assert "--smoke" in capsys.readouterr().err
