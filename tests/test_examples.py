"""The scripts in examples/ run, and do what they say."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.trains
def test_the_rl_loop_takes_its_steps_on_recorded_tokens():
    """That the reward rises is for benchmarks/tiny.py: here the mechanics count, which hold on any CPU."""
    source = Path("examples/rl_loop.py")
    assert len(source.read_text(encoding="utf-8").splitlines()) <= 80
    assert "prefect" not in source.read_text(encoding="utf-8").replace("no Prefect", "").lower()
    done = subprocess.run([sys.executable, str(source)], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    ratios = [float(value) for value in re.findall(r"ratio (\S+)", done.stdout)]
    assert len(ratios) == 8
    assert ratios[0] == pytest.approx(1, abs=1e-3)  # the trainer agrees with the engine about the recorded tokens
    assert any(abs(ratio - 1) > 1e-3 for ratio in ratios[1:])  # and the policy has moved
    assert re.search(r"reward before 0\.\d+, after 0\.\d+", done.stdout)
