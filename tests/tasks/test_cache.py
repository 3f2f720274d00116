"""ContentKey against a real server: what is Cached, and what runs again."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import pyarrow as pa
import pytest
from prefect import State, flow
from prefect.client.schemas.actions import GlobalConcurrencyLimitUpdate

from clawpipe.core.config.block import Block
from clawpipe.core.config.night import Runtime
from clawpipe.core.store.artifacts import Store
from clawpipe.core.store.datasets import publish_dataset, read_dataset
from clawpipe.core.store.home import Home
from clawpipe.core.store.records import find_record
from clawpipe.core.store.refs import DatasetRef, StepResult
from clawpipe.core.store.source import function_digest
from clawpipe.errors import BusyError, DataError
from tasks import cluster
from tasks.step import step

pytestmark = pytest.mark.usefixtures("prefect_api")


class Settings(Block):
    factor: int = 2


class MoreSettings(Settings):
    """With what the step does not take."""

    other: int = 0


@step()
def multiply(source: DatasetRef, settings: Settings, runtime: Runtime = Runtime()) -> StepResult:  # noqa: B008 - it is immutable
    store = Store(Home.from_env().store)
    numbers = read_dataset(store, source)["x"].to_pylist()
    output = publish_dataset(store, "products", [pa.table({"x": [settings.factor * x for x in numbers]})], parents=[source.digest])
    return StepResult(output=output, rows_in=len(numbers), rows_out=len(numbers), details={"device": runtime.device})


def run(*args, **kwargs) -> State[StepResult]:
    @flow
    def night() -> State[StepResult]:
        return multiply.task(*args, **kwargs, return_state=True)

    return night()


@pytest.fixture
def source(home: Home) -> DatasetRef:
    return publish_dataset(Store(home.store), "numbers", [pa.table({"x": [1, 2, 3]})])


def test_second_flow_run_is_cached_and_returns_the_same_ref(source: DatasetRef):
    first, second = run(source, Settings()), run(source, Settings(), runtime=Runtime(device="cuda"))
    assert (first.name, second.name) == ("Completed", "Cached")
    assert second.result() == first.result()


def test_other_content_or_other_settings_run(source: DatasetRef, home: Home):
    other = publish_dataset(Store(home.store), "numbers", [pa.table({"x": [5]})])
    assert [run(ref, Settings(factor=f)).name for ref, f in itertools.product([source, other], [2, 3])] == ["Completed"] * 4


@pytest.mark.parametrize(
    "damage",
    [
        lambda path: path.unlink(),
        lambda path: path.write_bytes(path.read_bytes()[:-1] + b"\0"),
    ],
    ids=["deleted", "flipped byte"],
)
def test_damaged_artifact_is_recomputed_with_equal_bytes(source: DatasetRef, home: Home, damage: Callable[[Path], object]):
    first = run(source, Settings()).result()
    damage(next(Store(home.store).path(first.output).glob("part-*")))
    repaired = run(source, Settings())
    assert repaired.name == "Completed"
    assert repaired.result().output == first.output
    assert Store(home.store).intact(first.output)
    assert run(source, Settings()).name == "Cached"


def test_damaged_record_is_a_miss(source: DatasetRef, home: Home):
    run(source, Settings())
    [record] = [path for path in home.steps.iterdir() if path.name.startswith("multiply-")]
    record.write_bytes(record.read_bytes()[:40])
    assert [run(source, Settings()).name for _ in range(2)] == ["Completed", "Cached"]


def test_edited_source_is_a_miss(source: DatasetRef, monkeypatch: pytest.MonkeyPatch):
    run(source, Settings())
    monkeypatch.setattr("tasks.keys.function_digest", lambda function: function_digest(function)[::-1])
    assert run(source, Settings()).name == "Completed"


def test_plan_finds_the_record_by_the_same_key(source: DatasetRef, home: Home):
    key = multiply.call(source=source, settings=Settings()).key
    assert key is not None
    assert find_record(home, key) is None
    result = run(source, Settings()).result()
    assert find_record(home, key) == result


def test_what_the_step_does_not_take_is_in_no_key(source: DatasetRef):
    keys = {multiply.call(source, settings).key for settings in (Settings(), MoreSettings(), MoreSettings(other=1))}
    assert len(keys) == 1
    assert multiply.call(source, MoreSettings(factor=3)).key not in keys


def test_only_busy_is_tried_again(monkeypatch: pytest.MonkeyPatch):
    calls: list[str] = []

    @step()
    def stumble(kind: str) -> StepResult:
        calls.append(kind)
        if kind == "busy" and calls.count("busy") == 2:
            return StepResult(rows_in=1)
        raise {"busy": BusyError, "data": DataError}[kind]("stumbled", where=kind)

    @flow
    def night() -> StepResult:
        quick = stumble.task.with_options(retry_delay_seconds=0)
        assert quick("busy").rows_in == 1
        return quick("data")

    with pytest.raises(DataError, match="data: stumbled"):
        night()
    assert calls == ["busy", "busy", "data"]


def test_heavy_step_holds_the_limit(home: Home):
    from prefect.client.orchestration import get_client

    from flows.bootstrap import prepare_limit

    @step(heavy=True)
    def train() -> StepResult:
        with get_client(sync_client=True) as client:
            return StepResult(rows_in=client.read_global_concurrency_limit_by_name("gpu").active_slots)

    prepare_limit(fresh_server=True)
    assert flow(lambda: train.task(), name="heavy")().rows_in == 1


def test_heavy_steps_share_the_accelerators_of_a_cluster(home: Home, monkeypatch: pytest.MonkeyPatch):
    """Of four, a step that asks for two takes two; this machine's own limit is nobody's concern."""
    from prefect.client.orchestration import get_client

    from flows.bootstrap import prepare_limit

    class Cluster:
        def accelerators(self) -> int:
            return 4

    @step(heavy=True)
    def train() -> StepResult:
        with get_client(sync_client=True) as client:
            limits = {one.name: (one.limit, one.active_slots) for one in client.read_global_concurrency_limits(limit=100)}
        return StepResult(details={name: limits[name] for name in ("gpu", "gpu-tcp-10-0-0-1-8786")})

    monkeypatch.setattr(cluster, "open_cluster", lambda runtime: nullcontext(Cluster()))
    runner = {"name": "dask", "address": "tcp://10.0.0.1:8786", "resources": {"GPU": 2}}
    prepare_limit(fresh_server=True)
    with cluster.on_cluster(Runtime.model_validate({"task_runner": runner})):
        found = flow(lambda: train.task(), name="heavy")().details
    assert found == {"gpu": (1, 0), "gpu-tcp-10-0-0-1-8786": (4, 2)}
    with get_client(sync_client=True) as client:
        client.update_global_concurrency_limit("gpu-tcp-10-0-0-1-8786", GlobalConcurrencyLimitUpdate(active_slots=3))
        prepare_limit(fresh_server=True)
        assert client.read_global_concurrency_limit_by_name("gpu-tcp-10-0-0-1-8786").active_slots == 0
