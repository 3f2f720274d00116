"""Dask as a cluster, with a real scheduler and real workers."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest

from clawpipe.core.config.runtime import Runtime
from clawpipe.core.system.ports import free_port
from clawpipe.core.system.progress import report, report_step, reporting_to
from clawpipe.errors import BusyError, DataError
from clawpipe.play.clusters.base import open_cluster
from tests.clusters.dask_processes import scheduler, worker

pytest.importorskip("distributed")
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with scheduler() as address:
        yield address


def runtime(address: str, **more) -> Runtime:
    return Runtime.model_validate({"task_runner": {"name": "dask", "address": address, **more}, "step_timeout": 60.0})


def pid() -> int:
    return os.getpid()


def refuse() -> None:
    raise DataError("no row", "rows", "give one")


def die_once(marker: str) -> str:
    try:
        os.close(os.open(marker, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return "done"
    os.kill(os.getpid(), signal.SIGKILL)
    return "unreachable"


def test_calls_run_in_a_worker_and_errors_come_back(address, tmp_path):
    with worker(address, tmp_path), open_cluster(runtime(address)) as cluster:
        assert cluster
        assert cluster.call(pid) != os.getpid()
        with pytest.raises(DataError, match="no row") as caught:
            cluster.call(refuse)
    assert caught.value.fix == "give one"


def tell() -> str:
    report(1, 2, "half")
    report_step({"step": 2, "of": 2, "loss": 0.5})
    return "done"


def test_progress_of_a_worker_is_heard_in_order(address, tmp_path):
    told = []

    class Heard:
        def progress(self, *what) -> None:
            told.append(what)

        def update(self, metrics) -> None:
            told.append(metrics)

    with worker(address, tmp_path), open_cluster(runtime(address)) as cluster, reporting_to(Heard()):
        assert cluster
        assert cluster.call(tell) == "done"
        with pytest.raises(DataError, match="no row"):
            cluster.call(refuse)
        assert cluster.accelerators() == 1
    assert told == [(1, 2, "half"), {"step": 2, "of": 2, "loss": 0.5}]


def test_a_call_whose_worker_dies_is_made_by_another(address, tmp_path):
    with worker(address, tmp_path / "one"), worker(address, tmp_path / "two"), open_cluster(runtime(address)) as cluster:
        assert cluster
        assert cluster.call(die_once, str(tmp_path / "marker")) == "done"


def test_nobody_with_the_resources_ends_in_one_line(address, tmp_path):
    given = runtime(address, resources={"GPU": 1}).model_copy(update={"step_timeout": 1.0})
    with worker(address, tmp_path), open_cluster(given) as cluster:
        assert cluster
        with pytest.raises(BusyError, match="no worker of Dask's") as caught:
            cluster.call(pid)
    assert "\n" not in caught.value.what


def test_a_scheduler_that_is_not_there_is_told(monkeypatch):
    monkeypatch.setattr("clawpipe.play.clusters.dask._ANSWERS_WITHIN", 1.0)
    with pytest.raises(BusyError, match="scheduler does not answer"), open_cluster(runtime(f"tcp://127.0.0.1:{free_port()}")):
        pass
