"""Row ranges: a large dataset is decided piece by piece, and comes to the rows that it would come to at once."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from clawpipe.core.config.curation import Curation
from clawpipe.core.contracts.schema import schema_of
from clawpipe.core.store.datasets import dataset_files, publish_dataset, read_dataset
from clawpipe.core.store.notes import Notes
from clawpipe.data.curation import measures, partitions, row_ranges
from clawpipe.data.curation.measures import measured
from clawpipe.data.curation.partitions import NAME
from clawpipe.data.curation.row_ranges import RowRange, measure_range, payload, row_ranges_of
from clawpipe.data.curation.runner import curate, wants


@pytest.fixture
def small(monkeypatch):
    """Row ranges of some six rows, measures in files of five."""
    monkeypatch.setattr(row_ranges, "ROWS", 6)
    monkeypatch.setattr(partitions, "_SMALL", 0)
    monkeypatch.setattr(measures, "_ROWS", 5)


def filled(tables, items, rows_a_file=4):
    """Three rollouts of each item in a row, in files of a few rows; again and again where an item comes again."""
    for number, item in enumerate(items):
        for index in range(3):
            name = f"{number}-{item}-{index}"
            tables.rollout(str(item), index, float(index == 1), text=f"{index} to {item}", trajectory_id=name)
    table = pa.Table.from_pylist(tables.trajectories, schema=schema_of("trajectories"))
    parts = [table.slice(start, rows_a_file) for start in range(0, max(table.num_rows, 1), rows_a_file)]
    return publish_dataset(tables.store, "trajectories", parts)


def whole_range(tables, dataset, method="grpo"):
    [narrow] = measured(tables.store, [dataset], wants(Curation(), method), threads=1)
    return RowRange(dataset, narrow)


def curated(tables, dataset, method="grpo"):
    scores, items = tables.publish("scores", tables.scores), tables.publish("task_items", tables.items)
    return curate(tables.store, [dataset], [scores], items, Curation(), method, threads=1)


def rows_in(tables, row_range):
    """Ids of its rows as the measures tell them, and as the trajectories do that these rows are of."""
    told, files, found, held = measure_range(tables.store, row_range), payload(tables.store, row_range), [], []
    for file, first, end in zip(told.files, told.first_rows, told.end_rows, strict=True):
        table = pq.read_table(file)
        for row in table.slice(first, min(end, table.num_rows) - first).to_pylist():
            stored = pq.read_table(files.files[row["file"] - files.skipped], columns=["trajectory_id"])
            held.append(stored["trajectory_id"][row["row"]].as_py())
            found.append(row["trajectory_id"])
    return found, held


@pytest.mark.usefixtures("small")
@settings(max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.integers(0, 5), max_size=12), st.integers(1, 9))
def test_row_ranges_are_all_rows_in_order_cut_between_groups(tables, items, rows_a_file):
    tables.trajectories, tables.scores = [], []
    row_range = whole_range(tables, filled(tables, items, rows_a_file))
    parts = row_ranges_of(tables.store, row_range)
    rows = [row["trajectory_id"] for row in tables.trajectories]
    assert [rows_in(tables, part) for part in parts] == [(rows[slice(*part.bounds)],) * 2 for part in parts]
    bounds = [part.bounds for part in parts]
    assert [end for _, end in bounds] == [*(first for first, _ in bounds[1:]), len(rows)]
    groups = [row["group_id"] for row in tables.trajectories]
    assert all(groups[first - 1] != groups[first] for first, _ in bounds[1:])


@pytest.mark.usefixtures("small")
def test_a_large_dataset_has_several_row_ranges_one_group_one(tables):
    many = whole_range(tables, filled(tables, range(8)))
    assert [part.bounds for part in row_ranges_of(tables.store, many)] == [(0, 6), (6, 12), (12, 18), (18, 24)]
    tables.trajectories = []
    one = whole_range(tables, filled(tables, [7] * 8))
    assert row_ranges_of(tables.store, one) == [one]


@pytest.mark.usefixtures("small")
@settings(max_examples=8, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.integers(0, 9), min_size=1, max_size=12), st.sampled_from(["grpo", "dpo", "sft", "ppo"]))
def test_any_order_of_groups_gives_the_rows_of_one_batch(tables, items, method):
    tables.trajectories, tables.scores = [], []
    dataset = filled(tables, items)
    apart = curated(tables, dataset, method)
    assert tables.agrees_with_one_batch(apart, lambda: curated(tables, dataset, method))


@pytest.mark.usefixtures("small")
def test_row_ranges_are_in_order_and_split_groups_stay_together(tables):
    dataset = filled(tables, [8, 7, 6, 5, 4, 8])  # row_ranges: 8 7, 6 5, 4 8
    result = curated(tables, dataset)
    assert len(list(Notes(tables.store, NAME))) == 2
    items = [row["item_id"] for row in read_dataset(tables.store, result.dataset).to_pylist()]
    assert items[::3] == ["4", "7", "8", "5", "6"]  # what 8 says again is a copy
    assert len(dataset_files(tables.store, result.dataset)) == 2
