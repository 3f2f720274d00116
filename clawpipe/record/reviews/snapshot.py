"""What a night takes of people's decisions: a dataset of those that count as it starts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict

import pyarrow as pa
import pyarrow.compute as pc

from clawpipe.core.basics.json_types import Row
from clawpipe.core.store.artifacts import Store
from clawpipe.core.store.datasets import dataset_files, read_dataset
from clawpipe.core.store.home import Home
from clawpipe.core.store.refs import DatasetRef
from clawpipe.errors import DataError
from clawpipe.record.nights.record import NightRecord
from clawpipe.record.nights.status import NightStatus, ReviewedRows, read_status
from clawpipe.record.reviews.decisions import Decision
from clawpipe.record.reviews.open import last_decisions
from clawpipe.record.reviews.table import SCHEMA, published

_IDS = {"trajectories": "trajectory_id", "preference_pairs": "pair_id"}


def reviews_of(home: Home, store: Store, record: NightRecord | None, decided: Home) -> str | None:
    """Return the digest of the decisions of a night that starts or goes on; None if there are none.

    Args:
        home: of the night.
        decided: where people decide; for a sweep's trial the home of the sweep.

    A night keeps those with which it began, unless it ended for its data: what was decided since may help.
    """
    if record and read_status(home, record.night).exit_code != DataError.exit_code:
        return record.reviews
    found = last_decisions(decided).values()
    return published(store, map(_row, found)).digest if found else None


def made_by(status: NightStatus) -> list[DatasetRef]:
    """Return the rollouts that a night has made."""
    steps = (step for step in status.steps if step.name.endswith("/generate_rollouts"))
    return [ref for step in steps if isinstance(ref := step.artifacts.get("output"), DatasetRef)]


def reviewed_rows(store: Store, reviews: DatasetRef, datasets: Iterable[DatasetRef]) -> list[ReviewedRows]:
    """Return who decided what about the rows of datasets of trajectories and pairs, and when."""
    ids = pa.chunked_array([*_ids(store, datasets)], pa.string())
    table = read_dataset(store, reviews)
    rows = table.filter(pc.is_in(table["row_id"], value_set=ids)).to_pylist()  # pyright: ignore[reportAttributeAccessIssue]  # made at run time
    counts = Counter((row["verdict"], row["by"]) for row in rows)
    times = {key: sorted(row["at"] for row in rows if (row["verdict"], row["by"]) == key) for key in counts}
    return [
        ReviewedRows(verdict=verdict, by=by, rows=counts[verdict, by], first=times[verdict, by][0], last=times[verdict, by][-1])
        for verdict, by in sorted(counts)
    ]


def _ids(store: Store, datasets: Iterable[DatasetRef]) -> Iterator[pa.Array]:
    for ref in datasets:
        if dataset_files(store, ref):
            yield from read_dataset(store, ref, [_IDS[ref.name]]).column(0).chunks


def _row(decision: Decision) -> Row:
    return {name: value for name, value in asdict(decision).items() if name in SCHEMA.names}
