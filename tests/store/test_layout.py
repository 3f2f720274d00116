"""How files of datasets are laid out, and whether files share a layout."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from clawpipe.core.store.artifacts import Store
from clawpipe.core.store.datasets import dataset_rows, publish_dataset, read_dataset, rows_at, write_parquet
from clawpipe.core.store.duck import have_different_columns
from clawpipe.data.curation.measures import SCHEMA as MEASURES

NUMBERS = pa.table({"number": pa.array(range(3000))})


@pytest.mark.parametrize(
    ("table", "groups"),
    [
        (NUMBERS, 1),
        (pa.table({field.name: pa.nulls(3000, field.type) for field in MEASURES}), 1),
        (NUMBERS.append_column("token_ids", pa.array([[1]] * 3000)), 3),
        (NUMBERS.append_column("logprobs", pa.array([[0.5]] * 3000)), 3),
    ],
)
def test_only_wide_rows_are_cut_into_small_groups(tmp_path, table, groups):
    write_parquet(table, tmp_path / "file.parquet")
    read = pq.ParquetFile(tmp_path / "file.parquet")
    assert (read.metadata.num_row_groups, read.read().equals(table.cast(read.schema_arrow))) == (groups, True)


@pytest.mark.parametrize(
    ("tables", "expected"),
    [
        ([], False),
        ([NUMBERS], False),
        ([NUMBERS, NUMBERS.slice(0, 5)], False),
        ([NUMBERS, NUMBERS.append_column("text", pa.nulls(3000, pa.string()))], True),
        ([NUMBERS, NUMBERS.cast(pa.schema([("number", pa.int32())]))], True),
    ],
)
def test_files_that_differ_in_a_column_are_mixed(tmp_path, tables, expected):
    files = [tmp_path / f"{number}.parquet" for number in range(len(tables))]
    for table, file in zip(tables, files, strict=True):
        pq.write_table(table, file)
    assert have_different_columns(files) is expected


@pytest.mark.parametrize("wide", [True, False])
def test_rows_a_batch_at_a_time_are_all_rows(tmp_path, wide):
    """Three files, of which one has no rows; wide rows lie in row groups of 1,024."""
    store = Store(tmp_path)
    sizes = [2500, 0, 3000]
    columns = [{"name": [f"{size}-{row}" for row in range(size)], **({"row": ["x"] * size} if wide else {})} for size in sizes]
    parts = [pa.table(part, pa.schema([(name, pa.string()) for name in part])) for part in columns]
    ref = publish_dataset(store, "rows", parts)
    every = read_dataset(store, ref).to_pylist()
    assert list(dataset_rows(store, ref)) == every
    assert list(dataset_rows(store, ref, ["name"])) == [{"name": row["name"]} for row in every]
    places = [0, 1023, 1024, 2499, 2500, 2500, 5499]
    assert list(rows_at(store, ref, places)) == [every[place] for place in places]
