"""Steps whose function a cluster's worker calls: which do, what they are sent, and what comes back.

The cluster here is a fake: it calls in this process what went through a pickle, as the real ones' calls do.
"""

from __future__ import annotations

import os
import pickle
import time
from contextlib import contextmanager

import pytest

from clawpipe.core.config.runtime import Runtime
from clawpipe.core.store.home import Home
from clawpipe.core.store.identity import home_id
from clawpipe.core.store.refs import StepResult
from clawpipe.core.system.devices import metered
from clawpipe.errors import ConfigError, DataError
from clawpipe.play.workers.pool import open_workers
from tasks import cluster
from tasks.cluster import on_cluster, placed, run_step
from tasks.step import step

GPUS = Runtime.model_validate({"task_runner": {"name": "dask", "address": "tcp://127.0.0.1:1", "resources": {"GPU": 2}}})


class FakeCluster:
    def __init__(self) -> None:
        self.called: list[str] = []

    def call(self, function, *arguments):
        function, arguments = pickle.loads(pickle.dumps((function, arguments)))  # noqa: S301 - what was just written
        self.called.append(arguments[1])
        return function(*arguments)

    def accelerators(self) -> int:
        return 4


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch, home: Home) -> FakeCluster:
    made = FakeCluster()

    @contextmanager
    def opened(runtime: Runtime):
        yield made if runtime.task_runner.name != "threads" else None

    monkeypatch.setattr(cluster, "open_cluster", opened)
    return made


@step(anywhere=True)
def far(rows: int) -> StepResult:
    return StepResult(rows_in=rows, rows_out=rows)


@step(anywhere=lambda given: given["rows"] > 1)
def sometimes(rows: int) -> StepResult:
    return StepResult(rows_in=rows)


@step(anywhere=True)
def refused(rows: int) -> StepResult:
    raise DataError("no row", "rows", "give one")


@step(anywhere=True)
def pooled(runtime: Runtime) -> StepResult:
    with open_workers(runtime, Home.from_env().logs) as pool:
        return StepResult(details={"pool": id(pool), "umask": os.umask(0o077)})


def call(one, **arguments) -> StepResult:
    """Call a step as its Prefect task does."""
    return one.task.fn(**arguments)


def test_a_step_goes_to_the_cluster_of_the_night(fake: FakeCluster):
    with on_cluster(GPUS):
        assert call(far, rows=3) == StepResult(rows_in=3, rows_out=3)
    assert fake.called == ["far"]
    with on_cluster(Runtime()):
        call(far, rows=3)
    call(far, rows=3)
    assert fake.called == ["far"]


def test_some_arguments_stay_here(fake: FakeCluster):
    with on_cluster(GPUS):
        assert [call(sometimes, rows=rows).rows_in for rows in (1, 2)] == [1, 2]
    assert fake.called == ["sometimes"]


def test_its_accelerators_are_counted(fake: FakeCluster, monkeypatch: pytest.MonkeyPatch):
    times = iter([10.0, 13.0])
    monkeypatch.setattr(cluster, "_now", lambda: next(times))
    with metered() as meter, on_cluster(GPUS):
        call(far, rows=1)
    assert meter.seconds == 2 * 3.0


def test_errors_come_back_whole(fake: FakeCluster):
    with on_cluster(GPUS), pytest.raises(DataError) as caught:
        call(refused, rows=1)
    assert (caught.value.what, caught.value.where, caught.value.fix) == ("no row", "rows", "give one")


def test_other_code_on_the_worker_is_refused(home: Home):
    with pytest.raises(ConfigError, match="has other code than this machine"):
        run_step(far.function.__module__, "far", {"rows": 1}, "0" * 64, home_id(home))


def test_a_worker_of_another_home_is_refused(home: Home):
    """Its results would lie in a store that nobody reads."""
    with pytest.raises(ConfigError, match="has another home") as caught:
        run_step(far.function.__module__, "far", {"rows": 1}, "0" * 64, "0123456789ab")
    assert "CLAWPIPE_SHARED" in caught.value.fix


def test_a_workers_models_stay_loaded_between_steps(fake: FakeCluster, home: Home):
    with on_cluster(GPUS):
        first, second = (call(pooled, runtime=GPUS).details for _ in range(2))
        other = call(pooled, runtime=GPUS.model_copy(update={"workers": 1})).details
    assert first["pool"] == second["pool"] != other["pool"]
    assert first["umask"] == 0o077


def test_old_shards_leave_a_workers_machine(fake: FakeCluster, home: Home):
    """No night ends there, so nobody removed it."""
    old, new = home.work / "shards" / "old", home.work / "shards" / "new"
    for folder in (old, new):
        folder.mkdir(parents=True)
        (folder / "rows.parquet").touch()
    os.utime(old, (0, time.time() - 8 * 86_400))
    with on_cluster(GPUS):
        call(far, rows=1)
    assert [path.name for path in home.work.glob("shards/*/")] == ["new"]


def test_a_placed_function_keeps_its_name_for_prefect():
    assert placed(far.function, True).__name__ == "far"
