"""Datasets of which rows are taken, or whose files are joined: the rows that stay are those that were there, in their order."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from clawpipe.core.store.artifacts import Store
from clawpipe.core.store.datasets import dataset_files, publish_dataset, read_dataset
from clawpipe.core.store.rewrite import compact, without_rows
from clawpipe.errors import DataError


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "store")


def numbers(*ids):
    return pa.table({"id": pa.array(ids, pa.int64()), "text": pa.array([f"t{number}" for number in ids], pa.string())})


def ids(store, ref):
    return read_dataset(store, ref)["id"].to_pylist()


PARTS = st.lists(st.lists(st.booleans(), max_size=5), min_size=1, max_size=5)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(goes=PARTS)
def test_the_other_rows_stay_in_order(store, goes):
    """`goes`: of each file, which of its rows are taken."""
    starts = [sum(map(len, goes[:number])) for number in range(len(goes))]
    tables = [numbers(*range(start, start + len(part))) for start, part in zip(starts, goes, strict=True)]
    ref = publish_dataset(store, "numbers", tables, schema_version="1.1")
    taken = {number: [row for row, gone in enumerate(part) if gone] for number, part in enumerate(goes)}
    new = without_rows(store, ref, taken)
    flat = [gone for part in goes for gone in part]
    assert ids(store, new) == [number for number, gone in enumerate(flat) if not gone]
    assert (new.rows, new.schema_version, new.parents) == (flat.count(False), "1.1", (ref.digest,))
    assert (new.digest == ref.digest) == (not any(flat))


def test_files_of_which_nothing_goes_are_linked(store):
    ref = publish_dataset(store, "numbers", [numbers(1, 2), numbers(3)])
    new = without_rows(store, ref, {0: [1]})
    old_files, new_files = dataset_files(store, ref), dataset_files(store, new)
    assert [file.stat().st_ino for file in new_files][1] == old_files[1].stat().st_ino
    assert new_files[0].stat().st_ino != old_files[0].stat().st_ino


def test_small_files_become_few_with_the_same_rows_in_order(store):
    refs = [publish_dataset(store, "numbers", [numbers(n), numbers(n + 1, n + 2)]) for n in (0, 3, 6)]
    joined = compact(store, refs, rows=4)
    assert ids(store, joined) == list(range(9))
    assert len(dataset_files(store, joined)) == 3
    assert set(joined.parents) == {ref.digest for ref in refs}
    assert joined.digest == publish_dataset(store, "numbers", [numbers(*range(4)), numbers(*range(4, 8)), numbers(8)]).digest


def test_what_is_compact_stays_what_it_is(store):
    ref = publish_dataset(store, "numbers", [numbers(*range(4)), numbers(4)])
    assert compact(store, [ref], rows=4) is ref
    assert compact(store, [ref], rows=5).digest != ref.digest


def test_columns_that_came_later_are_null_before(store):
    old = publish_dataset(store, "numbers", [numbers(1)])
    new = publish_dataset(store, "numbers", [numbers(2).append_column("user", pa.array(["u"]))])
    assert read_dataset(store, compact(store, [old, new])).to_pylist() == [
        {"id": 1, "text": "t1", "user": None},
        {"id": 2, "text": "t2", "user": "u"},
    ]


def test_what_does_not_fit_is_refused(store):
    one = publish_dataset(store, "numbers", [numbers(1)])
    with pytest.raises(DataError, match="one name and version"):
        compact(store, [one, publish_dataset(store, "others", [numbers(1)])])
    with pytest.raises(DataError, match="do not fit"):
        compact(store, [one, publish_dataset(store, "numbers", [pa.table({"id": ["x"]})])])
