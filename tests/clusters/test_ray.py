"""Ray as a cluster, with a real head, where Ray is installed."""

from __future__ import annotations

import os
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from clawpipe.clusters.base import open_cluster
from clawpipe.config.runtime import Runtime
from clawpipe.errors import DataError
from clawpipe.ports import LOOPBACK, free_port
from clawpipe.services.service import running
from tests.waiting import wait_until

pytest.importorskip("ray")
pytestmark = [pytest.mark.slow, pytest.mark.long, pytest.mark.filterwarnings("ignore::ResourceWarning")]
_AGENTS = ("dashboard-agent-grpc-port", "dashboard-agent-listen-port", "metrics-export-port", "runtime-env-agent-port")


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """The address of a head, whose agents have ports of their own: a busy machine does not find them within Ray's patience."""
    port, own = free_port(), [f"--{name}={free_port()}" for name in _AGENTS]
    where = ["--head", "--node-ip-address", LOOPBACK, "--port", str(port), "--num-cpus", "1", "--include-dashboard=false"]
    with tempfile.TemporaryDirectory(dir="/tmp", ignore_cleanup_errors=True) as folder, pytest.MonkeyPatch.context() as patch:
        for name, value in {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "t" * 32, "RAY_USAGE_STATS_ENABLED": "0"}.items():
            patch.setenv(name, value)
        ray = [str(Path(sys.executable).with_name("ray")), "start", *where, *own, "--object-store-memory", "100000000"]
        log = Path(folder) / "head.log"
        with running("Ray", [*ray, "--temp-dir", folder, "--block"], log, {}):
            wait_until(lambda: "will now block" in log.read_text(), 120.0)
            yield f"{LOOPBACK}:{port}"


def runtime(address: str) -> Runtime:
    return Runtime.model_validate({"task_runner": {"name": "ray", "address": address}, "step_timeout": 120.0})


def refuse() -> None:
    raise DataError("no row", "rows", "give one")


def die_once(marker: str) -> str:
    try:
        os.close(os.open(marker, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return "done"
    os.kill(os.getpid(), signal.SIGKILL)
    return "unreachable"


def test_a_dead_worker_leaves_stdout_alone(address: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """Ray tells of it there, where `clawpipe run --json` writes the night's status."""
    with open_cluster(runtime(address)) as cluster:
        assert cluster
        assert cluster.call(die_once, str(tmp_path / "marker")) == "done"
        assert cluster.accelerators() == 1
        with pytest.raises(DataError, match="no row") as caught:
            cluster.call(refuse)
    assert caught.value.fix == "give one"
    assert capsys.readouterr().out == ""
