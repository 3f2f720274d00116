"""Steps whose parts a cluster's workers do: curation by partition, evaluation by shard. What they make is what is made here."""

from __future__ import annotations

import shutil
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest

from clawpipe.core.config.night import Curation, EnvironmentConfig, Rollouts, Runtime
from clawpipe.core.store.datasets import dataset_files, write_parquet
from clawpipe.core.store.home import Home
from clawpipe.core.store.notes import Notes
from clawpipe.core.store.open import open_store
from clawpipe.core.store.refs import ModelRef, StepResult
from clawpipe.core.system.progress import reporting_to
from clawpipe.data.curation import measures, partitions
from clawpipe.model.policy.base import resolve_base
from clawpipe.model.policy.version import base_ref
from clawpipe.play.rollouts import generate
from clawpipe.play.workers.request import ShardRequest
from tasks.cluster import on_cluster
from tasks.data import curate
from tasks.evaluation import _rolled_out_by
from tasks.items import make_items
from tests.curation.conftest import Tables
from tests.tasks.test_cluster import GPUS, FakeCluster, call, fake  # noqa: F401 - `fake` is a fixture

LETTERS = EnvironmentConfig(name="letters", train_items=10, heldout_items=4, benchmark_items=0)


class Heard:
    def __init__(self) -> None:
        self.told: list[tuple[float, float, str]] = []

    def progress(self, done: float, total: float, note: str = "") -> None:
        self.told.append((done, total, note))

    def update(self, metrics) -> None: ...


@pytest.fixture
def three_nights(home: Home, monkeypatch: pytest.MonkeyPatch):
    """curated(): the result of `curate` over three datasets that have nothing in common, without what was kept of them."""
    monkeypatch.setattr(partitions, "_SMALL", 0)
    tables, datasets = Tables(home.store), []
    for name, items in (("first", "ab"), ("second", "cd"), ("third", "e")):
        tables.trajectories.clear()
        tables.scores.clear()
        for item in items:
            tables.item(item, f"about {item}?")
            for index in range(2):
                tables.rollout(item, index, float(index), text=f"{index} to {item}", trajectory_id=f"{name}-{item}-{index}")
        datasets.append((tables.publish("trajectories", tables.trajectories), tables.publish("scores", tables.scores)))
    trajectories, scores = map(list, zip(*datasets, strict=True))
    inputs = {"trajectories": trajectories, "scores": scores, "items": tables.publish("task_items", tables.items)}
    rest = {
        "method": "grpo",
        "weights": (1.0, 0.0),
        "hint": "text",
        "versions": [],
        "near": [],
        "replayed": [],
        "replayed_items": [],
        "normalise": "token",
    }

    def curated() -> StepResult:
        for kind in (measures.NAME, partitions.NAME):
            shutil.rmtree(Notes(open_store(home), kind).directory, ignore_errors=True)
        return call(curate, **inputs, **rest, config=Curation(), runtime=Runtime())

    return curated


def test_partitions_go_to_workers(three_nights, fake: FakeCluster):  # noqa: F811
    here, heard = three_nights(), Heard()
    assert here.rows_in == 10
    with on_cluster(GPUS), reporting_to(heard):
        assert three_nights() == here
    assert sorted(fake.called) == ["decide_partition"] * 3 + ["measure"] * 3
    assert heard.told == [(1, 3, "parts"), (2, 3, "parts"), (3, 3, "parts")] * 2


def test_a_kept_partition_goes_to_no_worker(three_nights, fake: FakeCluster, monkeypatch: pytest.MonkeyPatch):  # noqa: F811
    here = three_nights()
    monkeypatch.setattr(shutil, "rmtree", lambda *_, **__: None)
    with on_cluster(GPUS):
        assert three_nights() == here
    assert fake.called == []


@pytest.fixture
def policy() -> ModelRef:
    return base_ref("random", resolve_base("random").digest, "hermes", "float32")


def test_an_evaluation_goes_to_workers_by_shard(
    home: Home,
    fake: FakeCluster,  # noqa: F811
    policy: ModelRef,
    monkeypatch: pytest.MonkeyPatch,
):
    def played(pool, work: Path, request: ShardRequest, inputs: list[str]) -> Path:
        work.mkdir(parents=True, exist_ok=True)
        path = work / f"{request.items[0]['item_id'].replace('/', '-')}.parquet"
        write_parquet(pa.table({"item_id": [row["item_id"] for row in request.items]}), path)
        return path

    monkeypatch.setattr(generate, "_shard", played)
    items, config = make_items.function(environment=LETTERS).dataset, Rollouts(items=1, shard_rollouts=4).once(0.0)
    rolled_out = partial(_rolled_out_by(LETTERS, config, 0, Runtime()), items, "train", [9, 0, 5, 3, 2, 8], policy)
    here = rolled_out()
    with on_cluster(GPUS):
        assert rolled_out() == here
    assert fake.called == ["roll_out_part"] * 2
    assert [len(pa.parquet.read_table(file)) for file in dataset_files(open_store(home), here)] == [4, 2]
