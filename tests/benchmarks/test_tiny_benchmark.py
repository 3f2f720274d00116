"""The tiny night as shipped is learnt, whatever instructions compute."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

pytestmark = [pytest.mark.slow, pytest.mark.trains]


@pytest.mark.long
def test_the_shipped_night_is_learnt_on_another_cpu_too():
    """It was HOLD, 0.000 -> 0.000, with ATen's plain loops."""
    command = [sys.executable, "benchmarks/tiny.py", "--seeds", "1", "--cpu", "default", "compatible", "--threads", "1", "--json"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    result = json.loads(done.stdout)
    assert [(row["cpu"], row["threads"], row["seed"]) for row in result["trainings"]] == [("default", 1, 0), ("compatible", 1, 0)]
    for row in result["trainings"]:
        assert row["verdict"] == "PROMOTE"
        assert 0.05 <= row["base"] <= 0.5  # neither hopeless nor half done
        assert row["candidate"] > 0.8
        assert row["p"] < 1e-6
        assert row["approx_kl"] < 1
    assert result["summary"]["trainings"]["promoted"] == 2
