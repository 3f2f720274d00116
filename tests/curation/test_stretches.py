"""Stretches: a large dataset is decided piece by piece, and comes to the rows that it would come to at once."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from clawpipe.config.curation import Curation
from clawpipe.contracts.schema import schema_of
from clawpipe.curation import measures
from clawpipe.curation import partitions as cohorts
from clawpipe.curation import row_ranges as stretches
from clawpipe.curation.measures import measured
from clawpipe.curation.partitions import NAME
from clawpipe.curation.row_ranges import Stretch, payload, stretches_of, window
from clawpipe.curation.runner import curate, wants
from clawpipe.store.datasets import dataset_files, publish_dataset, read_dataset
from clawpipe.store.notes import Notes


@pytest.fixture
def small(monkeypatch):
    """Stretches of some six rows, measures in files of five."""
    monkeypatch.setattr(stretches, "ROWS", 6)
    monkeypatch.setattr(cohorts, "_SMALL", 0)
    monkeypatch.setattr(measures, "_ROWS", 5)


def filled(world, items, rows_a_file=4):
    """Three rollouts of each item in a row, in files of a few rows; again and again where an item comes again."""
    for number, item in enumerate(items):
        for index in range(3):
            name = f"{number}-{item}-{index}"
            world.rollout(str(item), index, float(index == 1), text=f"{index} to {item}", trajectory_id=name)
    table = pa.Table.from_pylist(world.trajectories, schema=schema_of("trajectories"))
    parts = [table.slice(start, rows_a_file) for start in range(0, max(table.num_rows, 1), rows_a_file)]
    return publish_dataset(world.store, "trajectories", parts)


def whole_stretch(world, dataset, method="grpo"):
    [narrow] = measured(world.store, [dataset], wants(Curation(), method), threads=1)
    return Stretch(dataset, narrow)


def curated(world, dataset, method="grpo"):
    scores, items = world.publish("scores", world.scores), world.publish("task_items", world.items)
    return curate(world.store, [dataset], [scores], items, Curation(), method, threads=1)


def rows_in(world, stretch):
    """Ids of its rows as the measures tell them, and as the trajectories do that these rows are of."""
    told, files, found, held = window(world.store, stretch), payload(world.store, stretch), [], []
    for file, first, end in zip(told.files, told.first_rows, told.end_rows, strict=True):
        table = pq.read_table(file)
        for row in table.slice(first, min(end, table.num_rows) - first).to_pylist():
            stored = pq.read_table(files.files[row["file"] - files.skipped], columns=["trajectory_id"])
            held.append(stored["trajectory_id"][row["row"]].as_py())
            found.append(row["trajectory_id"])
    return found, held


@pytest.mark.usefixtures("small")
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.integers(0, 5), max_size=12), st.integers(1, 9))
def test_stretches_are_all_rows_in_order_cut_between_groups(world, items, rows_a_file):
    world.trajectories, world.scores = [], []
    stretch = whole_stretch(world, filled(world, items, rows_a_file))
    parts = stretches_of(world.store, stretch)
    rows = [row["trajectory_id"] for row in world.trajectories]
    assert [rows_in(world, part) for part in parts] == [(rows[slice(*part.bounds)],) * 2 for part in parts]
    bounds = [part.bounds for part in parts]
    assert [end for _, end in bounds] == [*(first for first, _ in bounds[1:]), len(rows)]
    groups = [row["group_id"] for row in world.trajectories]
    assert all(groups[first - 1] != groups[first] for first, _ in bounds[1:])


@pytest.mark.usefixtures("small")
def test_a_large_dataset_has_several_stretches_and_one_group_has_one(world):
    many = whole_stretch(world, filled(world, range(8)))
    assert [part.bounds for part in stretches_of(world.store, many)] == [(0, 6), (6, 12), (12, 18), (18, 24)]
    world.trajectories = []
    one = whole_stretch(world, filled(world, [7] * 8))
    assert stretches_of(world.store, one) == [one]


@pytest.mark.usefixtures("small")
@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.integers(0, 9), min_size=1, max_size=12), st.sampled_from(["grpo", "dpo", "sft", "ppo"]))
def test_whatever_the_order_of_the_groups_the_rows_are_those_of_one_batch(world, items, method):
    world.trajectories, world.scores = [], []
    dataset = filled(world, items)
    apart = curated(world, dataset, method)
    assert world.agrees_with_one_batch(apart, lambda: curated(world, dataset, method))


@pytest.mark.usefixtures("small")
def test_stretches_stand_one_after_the_other_and_groups_that_go_on_are_decided_together(world):
    dataset = filled(world, [8, 7, 6, 5, 4, 8])  # stretches: 8 7, 6 5, 4 8
    result = curated(world, dataset)
    assert len(list(Notes(world.store, NAME))) == 2
    items = [row["item_id"] for row in read_dataset(world.store, result.dataset).to_pylist()]
    assert items[::3] == ["4", "7", "8", "5", "6"]  # what 8 says again is a copy
    assert len(dataset_files(world.store, result.dataset)) == 2
