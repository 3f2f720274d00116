"""Nights whose runs and models lie on an MLflow server, which is killed."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
from contextlib import closing

import pytest

from clawpipe.core.services.stack import mlflow_credentials, mlflow_server
from clawpipe.core.system.ports import free_port
from clawpipe.record.registry.client import changes
from clawpipe.record.registry.tracking import Tracking
from tests.flows.conftest import Clawpipe
from tests.waiting import wait_until

AGAIN = 75
pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:The ``noload`` loader strategy is deprecated:DeprecationWarning"),
]


def logged(clawpipe: Clawpipe) -> bool:
    with closing(sqlite3.connect(clawpipe.home.mlflow / "mlflow.db")) as database:
        return bool(database.execute("select count(*) from metrics").fetchone()[0])


@pytest.mark.long
def test_a_server_killed_in_mid_night_is_told_in_a_line(new_clawpipe, monkeypatch):
    clawpipe, port = new_clawpipe("mlflow-killed"), free_port()
    with changes(Tracking.of(clawpipe.home, "clawpipe-tiny")):
        pass  # it makes the database
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://127.0.0.1:{port}")
    for name, value in mlflow_credentials(clawpipe.home).items():
        monkeypatch.setenv(name, value)

    with mlflow_server(clawpipe.home, port) as (server, _), clawpipe.started("run", *clawpipe.options()) as night:
        wait_until(lambda: night.poll() is not None or logged(clawpipe), 300)  # an optimizer step
        kill_tree(server.process.pid)
        stdout, stderr = night.communicate(timeout=300)
    assert night.returncode == AGAIN, stdout + stderr
    assert '"the MLflow server does not answer' in stdout
    [told] = [line for line in stderr.splitlines() if "MLflow did not get" in line]
    assert "The night goes on" in told
    cut = clawpipe.curves()["step"]

    with mlflow_server(clawpipe.home, port):
        done = clawpipe.night()
    assert not any("MLflow" in warning for warning in done["warnings"])
    steps = [step for step, _ in clawpipe.curves()["step"]]
    assert 0 < len(cut) < len(steps)
    assert steps == list(range(1, len(steps) + 1))  # once each
    assert done["model"]["version"] == "1"


def kill_tree(pid: int) -> None:
    """Kill a process and what it started, children first, so that nobody cleans up."""
    children = subprocess.run(["pgrep", "-P", str(pid)], capture_output=True, text=True).stdout.split()
    for child in map(int, children):
        kill_tree(child)
    os.kill(pid, signal.SIGKILL)
