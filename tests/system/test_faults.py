"""Fault points: where a process dies, and where it does not."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

SCRIPT = """
from clawpipe.core.system import faults
for step in ("score", "train"):
    faults.kill_point("step.before_record", step)
    print(step, flush=True)
"""


@pytest.mark.parametrize(
    ("kill_at", "passed"),
    [
        ("", ["score", "train"]),
        ("step.before_record", []),
        ("step.before_record/train", ["score"]),
        ("step.before_record#2", ["score"]),
        ("step.before_record#3", ["score", "train"]),
        ("elsewhere,step.before_record/train", ["score"]),
        ("step.before_record#2,step.before_record/train#2", ["score"]),
        ("step", ["score", "train"]),
    ],
)
def test_a_process_dies_at_the_named_point_and_nowhere_else(kill_at: str, passed: list[str]):
    env = os.environ | {"CLAWPIPE_KILL_AT": kill_at}
    done = subprocess.run([sys.executable, "-c", SCRIPT], env=env, capture_output=True, text=True, timeout=60)
    assert done.stdout.split() == passed
    assert done.returncode == (0 if len(passed) == 2 else -9)
