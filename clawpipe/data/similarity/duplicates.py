"""Find near-duplicates: trajectories whose text is nearly that of an earlier one.

Earlier means in an earlier dataset of the list, or in the same dataset with a smaller id. So datasets that are added later do not
change the result for a row, and a night compares its new rows with those of all nights.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib import resources
from itertools import pairwise
from typing import NamedTuple

import duckdb
import numpy as np
import pyarrow as pa

import clawpipe.data.similarity
from clawpipe.core.store.artifacts import Store
from clawpipe.core.store.datasets import dataset_files, publish_dataset
from clawpipe.core.store.duck import session
from clawpipe.core.store.parts import rechunk
from clawpipe.core.store.refs import DatasetRef, StepResult
from clawpipe.data.curation.joined_tables import LAYOUTS
from clawpipe.data.similarity.signatures import shingles_of
from clawpipe.data.similarity.words import Hashes, jaccard

SCHEMA = LAYOUTS["near_duplicate"]  # similarity: the exact Jaccard similarity of the texts
_CANDIDATES = resources.files(clawpipe.data.similarity) / "sql" / "candidates.sql"
_SHINGLES = 1 << 24  # of the candidates that are in memory at a time, for each of which all texts are read: 128 MiB


class Signed(NamedTuple):
    """Trajectories and their signatures."""

    trajectories: DatasetRef
    signatures: DatasetRef


def zip_signed(trajectories: Sequence[DatasetRef], signatures: Sequence[DatasetRef]) -> list[Signed]:
    """Pair datasets with their signatures, in order."""
    return [Signed(*pair) for pair in zip(trajectories, signatures, strict=True)]


def near_duplicates(
    store: Store,
    new: Sequence[Signed],
    earlier: Sequence[Signed] = (),
    threshold: float = 0.8,
    threads: int | None = None,
    memory: str | None = None,
) -> StepResult:
    """Find the trajectories of `new` that repeat one of `earlier`, or an earlier one of `new`.

    Args:
        threshold: least Jaccard similarity of the shingles of the texts, see clawpipe.data.similarity.words.
        threads, memory: limits of DuckDB, see clawpipe.core.store.duck.session.

    Returns:
        output: `near_duplicate` of layout SCHEMA, ordered by trajectory_id and repeats; a trajectory that repeats several
        has as many rows. details: candidates, repeating (distinct trajectories).

    Raises:
        DataError: a dataset is missing or damaged.
    """
    sources = [*earlier, *new]
    signatures = [(str(file), place) for place, one in enumerate(sources) for file in dataset_files(store, one.signatures)]
    texts = [str(file) for one in sources for file in dataset_files(store, one.trajectories)]
    with session(store, [*texts, *(file for file, _ in signatures)], threads, memory) as duck:
        found = _candidates(duck, signatures, len(earlier))
        tables = [_verified(duck, texts, part, threshold) for part in _parts(found)]
    table = pa.concat_tables([SCHEMA.empty_table(), *tables])
    parents = [ref.digest for one in sources for ref in one]
    output = publish_dataset(store, "near_duplicate", rechunk(table.to_batches(), SCHEMA), parents=parents)
    details = {"candidates": found.num_rows, "repeating": len(table["trajectory_id"].unique())}
    return StepResult(output=output, rows_in=sum(one.trajectories.rows for one in new), rows_out=output.rows, details=details)


def _candidates(duck: duckdb.DuckDBPyConnection, signatures: Sequence[tuple[str, int]], first_new: int) -> pa.Table:
    files, places = [file for file, _ in signatures], [place for _, place in signatures]
    duck.register("sources", pa.table({"filename": files, "place": pa.array(places, pa.int64())}))
    statement = _CANDIDATES.read_text(encoding="utf-8")
    return duck.sql(statement, params={"signatures": files, "first_new": first_new}).to_arrow_table()


def _parts(found: pa.Table) -> Iterator[pa.Table]:
    """Yield the candidates in parts of about _SHINGLES shingles."""
    part = np.cumsum(found["shingles"].to_numpy(), dtype=np.int64) // _SHINGLES
    starts = [0, *(np.flatnonzero(np.diff(part)) + 1).tolist(), found.num_rows]
    yield from (found.slice(start, end - start).drop_columns("shingles") for start, end in pairwise(starts) if end > start)


def _verified(duck: duckdb.DuckDBPyConnection, texts: Sequence[str], pairs: pa.Table, threshold: float) -> pa.Table:
    """Return the pairs with a similarity of at least `threshold`."""
    sets = _shingles(duck, texts, pairs)
    later, repeated = pairs["trajectory_id"].to_pylist(), pairs["repeats"].to_pylist()
    similar = [jaccard(sets[one], sets[other]) for one, other in zip(later, repeated, strict=True)]
    table = pairs.append_column("similarity", pa.array(similar, pa.float64())).cast(SCHEMA)
    return table.filter(pa.array([value >= threshold for value in similar], pa.bool_()))


def _shingles(duck: duckdb.DuckDBPyConnection, texts: Sequence[str], pairs: pa.Table) -> dict[str, Hashes]:
    wanted = pa.chunked_array([*pairs["trajectory_id"].chunks, *pairs["repeats"].chunks])
    duck.register("wanted", pa.table({"trajectory_id": wanted}))
    rows = duck.sql(
        "select trajectory_id, messages from read_parquet($texts, union_by_name = true) semi join wanted using (trajectory_id)",
        params={"texts": list(texts)},
    )
    batches = rows.to_arrow_reader()
    return {row["trajectory_id"]: shingles_of(row["messages"]) for batch in batches for row in batch.to_pylist()}
