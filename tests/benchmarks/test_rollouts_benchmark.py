"""The benchmark of rollouts runs, and both sides' log-probs are those of a forward pass."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("quick_scripts")]


def test_the_benchmark_of_rollouts_answers_its_three_questions():
    command = [sys.executable, "-W", "ignore", "benchmarks/rollouts.py", "--model", "random", "--items", "1", "--tokens", "2"]
    small = ["--repeats", "1", "--tool", "0.01", "--threads", "1", "--json"]
    done = subprocess.run([*command, *small], cwd=Path(__file__).parents[2], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    result = json.loads(done.stdout)
    assert len(result["speed"]["tokens_per_second"]) == 5
    assert result["step"]["linear_layers_seconds"] > 0
    assert all(0 < busy["share"] <= 1 for busy in result["busy"].values())
