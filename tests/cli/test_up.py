"""`clawpipe up` for real: everything starts, answers, is deployed, and ends together."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from clawpipe.errors import BusyError
from clawpipe.services import stack
from clawpipe.services.ports import free_port, is_free
from clawpipe.services.prefect_server import announced_url
from clawpipe.services.service import Service, answers
from clawpipe.store.home import Home

CLI = [sys.executable, "-m", "clawpipe.cli.main", "up"]


def test_wanted_port_must_be_free_and_the_usual_one_gives_way():
    free = free_port()
    assert stack.choose_port(free, 1) == stack.choose_port(None, free) == free
    with socket.create_server(("127.0.0.1", free)):
        assert stack.choose_port(None, free) != free
        with pytest.raises(BusyError, match=str(free)):
            stack.choose_port(free, 1)


def test_end_of_a_service_is_told_with_its_log(tmp_path: Path):
    log = tmp_path / "worker.log"
    log.write_text("out of memory\n")
    gone = subprocess.Popen([sys.executable, "-c", "raise SystemExit(9)"])
    gone.wait()
    with pytest.raises(BusyError, match=r"worker ended with code 9(.|\n)*out of memory"):
        stack.Stack("", "", (Service("worker", gone, log),)).watch()


@pytest.fixture
def up(home: Home) -> Iterator[tuple[subprocess.Popen[str], str]]:
    process = subprocess.Popen(
        [*CLI, "--prefect-port", str(free_port()), "--mlflow-port", str(free_port())],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert process.stdout is not None
    said = ""
    for line in process.stdout:
        said += line
        if "Ctrl-C" in line:
            break
    yield process, said
    process.kill()
    process.wait()


@pytest.mark.slow
def test_up_and_down(up: tuple[subprocess.Popen[str], str], home: Home):
    process, said = up
    url = announced_url(home)
    assert url is not None, said
    assert url in said
    mlflow = next(line.split()[1] for line in said.splitlines() if line.startswith("MLflow"))
    assert answers(f"{mlflow}/health")
    with urllib.request.urlopen(f"{url}/deployments/name/nightly-retrain/nightly") as reply:
        assert json.load(reply)["work_pool_name"] == "clawpipe"
    assert {log.name for log in (home.root / "logs").iterdir()} == {"prefect-server.log", "mlflow-server.log", "worker.log"}

    second = subprocess.run(CLI, capture_output=True, text=True, timeout=60)
    assert second.returncode == 75
    assert str(process.pid) in second.stderr

    process.send_signal(signal.SIGTERM)
    rest, _ = process.communicate(timeout=60)
    assert (process.returncode, rest.strip()) == (0, "stopped")
    assert announced_url(home) is None
    assert all(is_free(int(address.rpartition(":")[2])) for address in (url.removesuffix("/api"), mlflow))
