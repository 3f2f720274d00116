"""How files of datasets are laid out, and whether files share a layout."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from clawpipe.core.store.datasets import write_parquet
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
