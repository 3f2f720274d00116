"""Tests depend on nothing of whoever starts them: no variable, no home, no locale, no time zone, no working directory."""

from __future__ import annotations

import locale
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
NAMES = (
    *(
        "CLAWPIPE_HOME",
        "CLAWPIPE_STORE",
        "CLAWPIPE_LEDGER",
        "CLAWPIPE_SHARED",
        "CLAWPIPE_API_KEY",
        "CLAWPIPE_KILL_AT",
        "CLAWPIPE_DEBUG",
        "CLAWPIPE_MODEL_CACHE",
    ),
    *("PREFECT_HOME", "PREFECT_API_URL", "PREFECT_PROFILE", "PREFECT_LOGGING_LEVEL", "MLFLOW_TRACKING_URI", "MLFLOW_RUN_ID"),
    *("WANDB_MODE", "WANDB_API_KEY", "WANDB_DIR", "AWS_PROFILE", "AWS_REGION", "AWS_ENDPOINT_URL", "HOME", "LANG", "LC_NUMERIC"),
    *("HF_HOME", "HF_ENDPOINT", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "http_proxy", "HTTPS_PROXY", "ALL_PROXY"),
    *("COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR", "TERM", "WORLD_SIZE", "RANK", "MASTER_ADDR", "ACCELERATE_USE_FSDP"),
)
HOSTILE = dict.fromkeys(NAMES, "/nowhere/theirs") | {
    "TZ": "Pacific/Kiritimati",
    "LC_ALL": "C",
    "PYTHONUTF8": "0",  # with C, a file that is opened without an encoding is ASCII
    "PYTHONCOERCECLOCALE": "0",
    "PYTHONWARNINGS": "error::DeprecationWarning",
    "PYTHONHASHSEED": "1",
    "OMP_NUM_THREADS": "7",
    "CUDA_VISIBLE_DEVICES": "0",
    "CI": "1",
}
SENSITIVE = (
    "test_callers_environment.py::test_nothing_of_the_caller_s_is_left",
    "test_docs.py",
    "cli/test_main.py",
    "config/test_load.py",
    "nights/test_record.py",
    "policy/test_tiny.py",
    "reporting/test_terminal.py",
    "services/test_prefect_server.py::test_environment_wins_over_the_profile",
    "tracking/test_wandb.py::test_a_night_is_one_run_however_often_it_was_killed",
)


def test_nothing_of_the_caller_s_is_left():
    assert not [name for name, value in os.environ.items() if "theirs" in value]
    assert not {"PYTHONWARNINGS", "PYTHONHASHSEED", "OMP_NUM_THREADS", "CI"} & os.environ.keys()
    assert Path.cwd() == ROOT
    assert time.tzname[0] == "UTC"
    assert locale.getencoding() == "UTF-8"


@pytest.mark.slow
@pytest.mark.long
def test_a_hostile_caller_changes_no_result(tmp_path):
    quick = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "not slow"]
    command = [*quick, *(str(ROOT / "tests" / test) for test in SENSITIVE)]
    done = subprocess.run(command, cwd=tmp_path, env=os.environ | HOSTILE, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]
