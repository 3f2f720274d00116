"""Stored preference pairs beside those that a night has made: validated, decontaminated, each once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from importlib import resources
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import clawpipe.curation
from clawpipe.contracts.odcs import newest_version
from clawpipe.contracts.schema import schema_of
from clawpipe.contracts.validate import validate
from clawpipe.store.artifacts import Store
from clawpipe.store.datasets import dataset_files, publish_dataset
from clawpipe.store.duck import session
from clawpipe.store.parts import rechunk
from clawpipe.store.refs import DatasetRef, StepResult

_SQL = resources.files(clawpipe.curation) / "sql"


def join_pairs(store: Store, made: Sequence[DatasetRef], stored: Sequence[DatasetRef], items: DatasetRef) -> StepResult:
    """One dataset of pairs: those that the night has made first, then the stored ones that keep the contract.

    Returns:
        output: `preference_pairs`; extras: "quarantine-N" for the N-th stored dataset (from 1) of which rows broke the contract.

    Raises:
        DataError: a dataset is missing, damaged or of another layout.
    """
    checked = [validate(store, ref, "preference_pairs") for ref in stored]
    sources = [*made, *(result.dataset for result in checked)]
    files = [file for ref in sources for file in dataset_files(store, ref)]
    reasons = _reasons(store, files, dataset_files(store, items))
    batches = (batch for file, kept in zip(files, _kept(reasons, len(files)), strict=True) for batch in _rows(file, kept))
    parents = [ref.digest for ref in (*sources, items)]
    rows, version = rechunk(batches, schema_of("preference_pairs")), newest_version("preference_pairs")
    output = publish_dataset(store, "preference_pairs", rows, schema_version=version, parents=parents)
    set_aside = Counter(reason for _, reason in reasons if reason)
    set_aside.update({reason: count for result in checked for reason, count in result.set_aside.items()})
    extras = {f"quarantine-{number}": result.extras["quarantine"] for number, result in enumerate(checked, 1) if result.extras}
    rows_in = sum(ref.rows for ref in (*made, *stored))
    return StepResult(output=output, extras=extras, rows_in=rows_in, rows_out=output.rows, set_aside=dict(set_aside))


def _reasons(store: Store, files: Sequence[Path], items: Sequence[Path]) -> list[tuple[int, str | None]]:
    """(number of the file, why the row is set aside) of every row, in order."""
    paths = {"pairs": [str(file) for file in files], "items": [str(file) for file in items]}
    with session(store, [*files, *items]) as duck:
        duck.execute((_SQL / "words.sql").read_text(encoding="utf-8"))
        rows = duck.execute((_SQL / "stored_pairs.sql").read_text(encoding="utf-8"), paths).fetchall()
    return [(file, reason) for file, _, reason in rows]


def _kept(reasons: Sequence[tuple[int, str | None]], files: int) -> list[np.ndarray]:
    return [np.array([reason is None for place, reason in reasons if place == file], dtype=bool) for file in range(files)]


def _rows(file: Path, kept: np.ndarray) -> Iterator[pa.RecordBatch]:
    yield from pq.read_table(file).filter(pa.array(kept)).to_batches()
