"""Read stored scores trajectory by trajectory: DuckDB sorts them, so that those of millions need little memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from clawpipe.core.basics.json_types import Row
from clawpipe.core.store.artifacts import Store
from clawpipe.core.store.datasets import dataset_files
from clawpipe.core.store.duck import have_different_columns, session
from clawpipe.core.store.refs import DatasetRef

_MEMORY = "256MB"  # beyond it DuckDB goes to disk
_JUDGED = """
    with scores as (
        select trajectory_id, turn, scorer, origin, value, success, file_index, file_row_number
        from read_parquet($scores, union_by_name = $mixed)
    )
    select * exclude (file_index, file_row_number)
    from scores semi join (select trajectory_id from scores where origin = 'judge') as judged using (trajectory_id)
    order by trajectory_id, file_index, file_row_number"""


def judged_scores(store: Store, scores: Sequence[DatasetRef]) -> Iterator[list[Row]]:
    """Yield the scores of each trajectory that a judge has scored, by its id; those of one trajectory in stored order.

    Raises:
        DataError: a dataset is missing or damaged.
    """
    files = [str(file) for ref in scores for file in dataset_files(store, ref)]
    if not files:
        return
    with session(store, files, memory=_MEMORY) as duck:
        batches = duck.sql(_JUDGED, params={"scores": files, "mixed": have_different_columns(files)}).to_arrow_reader(8192)
        rows = (row for batch in batches for row in batch.to_pylist())
        for _, of_one in groupby(rows, key=lambda row: row["trajectory_id"]):
            yield list(of_one)
