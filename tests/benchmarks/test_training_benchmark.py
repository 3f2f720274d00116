"""The training benchmark on a random model: what it prints, that it compares like with like, and its count of FLOPs."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from peft import LoraConfig, get_peft_model
from torch.utils.flop_counter import FlopCounterMode
from transformers import LlamaConfig, LlamaForCausalLM

from clawpipe.learn.training.data.packing import build_pack
from clawpipe.learn.training.data.samples import Sample

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def result(quick_scripts):
    command = [sys.executable, "benchmarks/training.py", "--model", "random", "--repeats", "1", "--threads", "1", "--json"]
    done = subprocess.run(command, cwd=ROOT, env=os.environ | {"OMP_NUM_THREADS": "1"}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)


@pytest.mark.slow
def test_prints_ratios_and_conditions(result):
    assert {"demo_groups_tokens_per_s", "long_sessions_tokens_per_s", "long_sessions_peak_memory"} <= result["ratios"].keys()
    assert {"model", "threads", "load_before", "libraries"} <= result["conditions"].keys()
    assert all(value > 0 for value in result["ratios"].values())


@pytest.mark.slow
def test_both_sides_compute_the_same(result):
    for workload in result["workloads"].values():
        assert workload["difference"]["loss"] < 1e-5
        assert workload["difference"]["grad_norm"] < 1e-5
        assert abs(workload["clawpipe"]["loss"]) > 1e-3  # nothing would be equal to nothing


@pytest.mark.slow
def test_shares_what_rows_share(result):
    demo, sessions, rows = (result["workloads"][name] for name in ("demo_groups", "long_sessions", "long_sessions_as_rows"))
    assert sum(demo["packs"]) < demo["row_tokens"] / 4
    assert sessions["packs"] == [255]  # the last token predicts nothing
    assert sessions["row_tokens"] == 64 + 128 + 192 + 256
    assert sum(rows["packs"]) == rows["row_tokens"] - 2


def test_counts_the_flops_of_the_matrix_products(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    flops = importlib.import_module("training_flops")
    config = LlamaConfig(
        vocab_size=300, hidden_size=64, intermediate_size=160, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2
    )
    model = get_peft_model(LlamaForCausalLM(config), LoraConfig(r=8, target_modules="all-linear"))
    model.enable_input_require_grads()  # else the first layer saves the gradient of its input, which `needed` does not know
    tokens = torch.arange(20)
    everything = torch.ones(20).numpy()
    row = Sample("g", tokens.numpy(), tokens[1:].numpy(), 1.0, 1.0, {"advantages": everything[1:]})
    pack = build_pack([row])
    with FlopCounterMode(display=False) as counter:
        model(input_ids=pack["input_ids"]).logits.sum().backward()
    counts = {str(operation): count for operation, count in counter.get_flop_counts()["Global"].items()}
    need = flops.needed(model, [pack])
    assert sum(need.products.values()) == sum(counts[name] for name in counts if name in ("aten.mm", "aten.addmm"))
    assert need.attention == 12 * (19 * 20 // 2) * 3 * 64
