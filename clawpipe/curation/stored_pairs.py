"""Join stored preference pairs with those of a night: pairs that keep the contract, once each, and none about held-out items."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from importlib import resources
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
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
    """Join the pairs of this night and the stored pairs that keep the contract, in this order, to one dataset.

    Returns:
        output: `preference_pairs`; extras: "quarantine-N" for the N-th stored dataset (from 1) with rejected rows.

    Raises:
        DataError: a dataset is missing or damaged, or has another layout.
    """
    checked = [validate(store, ref, "preference_pairs") for ref in stored]
    sources = [*made, *(result.dataset for result in checked)]
    files = [file for ref in sources for file in dataset_files(store, ref)]
    reasons = _reasons(store, files, dataset_files(store, items))
    batches = (batch for number, file in enumerate(files) for batch in _kept(file, reasons, number))
    parents = [ref.digest for ref in (*sources, items)]
    rows, version = rechunk(batches, schema_of("preference_pairs")), newest_version("preference_pairs")
    output = publish_dataset(store, "preference_pairs", rows, schema_version=version, parents=parents)
    filtered = Counter(reasons["reason"].drop_null().to_pylist())
    filtered.update({reason: count for result in checked for reason, count in result.filtered.items()})
    extras = {f"quarantine-{number}": result.extras["quarantine"] for number, result in enumerate(checked, 1) if result.extras}
    rows_in = sum(ref.rows for ref in (*made, *stored))
    return StepResult(output=output, extras=extras, rows_in=rows_in, rows_out=output.rows, filtered=dict(filtered))


def _reasons(store: Store, files: Sequence[Path], items: Sequence[Path]) -> pa.Table:
    """Return (index of the file, index of the row in it, reason to filter it) of every row, in order."""
    paths = {"pairs": [str(file) for file in files], "items": [str(file) for file in items]}
    with session(store, [*files, *items]) as duck:
        duck.execute((_SQL / "macros.sql").read_text(encoding="utf-8"))
        return duck.sql((_SQL / "stored_pairs.sql").read_text(encoding="utf-8"), params=paths).to_arrow_table()


def _kept(file: Path, reasons: pa.Table, number: int) -> Iterator[pa.RecordBatch]:
    of_file = reasons.filter(pc.field("file_index") == number)
    yield from pq.read_table(file).filter(of_file["reason"].is_null()).to_batches()
