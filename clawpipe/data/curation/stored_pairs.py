"""Join stored preference pairs with those of a night. Stored pairs pass the filters that trajectories pass."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from clawpipe.core.basics.json_types import Options
from clawpipe.core.config.curation import Curation
from clawpipe.core.contracts.odcs import newest_version
from clawpipe.core.contracts.schema import schema_of
from clawpipe.core.contracts.validate import validate
from clawpipe.core.store.artifacts import Store
from clawpipe.core.store.datasets import dataset_files, publish_dataset
from clawpipe.core.store.duck import session
from clawpipe.core.store.parts import rechunk
from clawpipe.core.store.refs import DatasetRef, StepResult
from clawpipe.data.curation.counts import Count
from clawpipe.data.curation.joined_tables import register
from clawpipe.data.curation.settings import idle_steps, parameters
from clawpipe.data.curation.statements import count_rows, create_functions, create_macros, kept, read_sql, run_step, used

_REVIEW, _QUOTAS = "12_review", "48_quotas"
_STORED_ONLY = {_REVIEW: "*", _QUOTAS: "* exclude (user_id)"}  # steps of stored pairs alone, and the columns that they leave
_STEPS = (
    *(_REVIEW, "25_staleness", "30_decontaminate", "32_decontaminate_near", "35_canary", "stored_repeats"),
    *(_QUOTAS, "69_share"),
)
_NO_TABLES: Mapping[str, pa.Table] = {}


def join_pairs(
    store: Store,
    made: Sequence[DatasetRef],
    stored: Sequence[DatasetRef],
    items: DatasetRef,
    config: Curation | None = None,
    *,
    versions: Sequence[str] = (),
    tables: Mapping[str, pa.Table] = _NO_TABLES,
) -> StepResult:
    """Join the pairs of this night and the stored pairs that keep the contract, in this order, to one dataset.

    Both pass the filters of rows; quotas and people's decisions are about stored pairs alone, since those of this night are of
    trajectories that have passed them.

    Args:
        config: the settings of curation; None: the defaults.
        versions: policy versions, the newest first; see `config.needs_versions`.
        tables: as for `curate`, by the ids of pairs in place of trajectories.

    Returns:
        output: `preference_pairs`; extras: "quarantine-N" for the N-th stored dataset (from 1) with rejected rows;
        details: steps (name, unit, rows_in, rows_out, filtered).

    Raises:
        DataError: a dataset is missing or damaged, or has another layout.
    """
    checked = [validate(store, ref, "preference_pairs") for ref in stored]
    sources = [*made, *(result.dataset for result in checked)]
    files = [file for ref in sources for file in dataset_files(store, ref)]
    own = sum(len(dataset_files(store, ref)) for ref in made)
    chosen, counts = _chosen(store, files, dataset_files(store, items), own, config or Curation(), versions, tables)
    batches = (batch for number, file in enumerate(files) for batch in _rows(file, chosen, number))
    rows, version = rechunk(batches, schema_of("preference_pairs")), newest_version("preference_pairs")
    parents = [ref.digest for ref in (*sources, items)]
    output = publish_dataset(store, "preference_pairs", rows, schema_version=version, parents=parents)
    filtered = sum((Counter(part) for part in [*(one.filtered for one in (*counts, *checked))]), Counter[str]())
    extras = {f"quarantine-{number}": result.extras["quarantine"] for number, result in enumerate(checked, 1) if result.extras}
    rows_in = sum(ref.rows for ref in (*made, *stored))
    details = {"steps": [count.model_dump() for count in counts]}
    return StepResult(output=output, extras=extras, rows_in=rows_in, rows_out=output.rows, filtered=dict(filtered), details=details)


def _chosen(
    store: Store,
    files: Sequence[Path],
    items: Sequence[Path],
    made_files: int,
    config: Curation,
    versions: Sequence[str],
    tables: Mapping[str, pa.Table],
) -> tuple[pa.Table, list[Count]]:
    """Return (index of the file, index of the row in it) of the pairs that are left, and the counts of the steps."""
    paths = {"pairs": [str(file) for file in files], "items": [str(file) for file in items]}
    settings = {**parameters(config), **paths, "made_files": made_files, "versions": list(versions), "wants_ratios": False}
    with session(store, [*files, *items]) as duck:
        create_macros(duck)
        create_functions(duck)
        register(duck, tables)
        duck.execute(f"create temp table measured as {read_sql('stored_pairs')}", _used_by_measures(duck, settings))
        duck.execute("create temp view runs as select trajectory_id, runs from measured")
        duck.execute("create temp view previous as select * exclude (runs) from measured")
        idle = idle_steps(config, tables)
        counts = [_run(duck, name, settings) for name in _STEPS if name not in idle]
        return duck.sql("select file_index, file_row_number from previous").to_arrow_table(), counts


def _used_by_measures(duck: duckdb.DuckDBPyConnection, settings: Options) -> Options:
    return used(duck, read_sql("stored_pairs"), settings)


def _run(duck: duckdb.DuckDBPyConnection, name: str, settings: Options) -> Count:
    """Run a step on the pairs that are left, or on the stored ones among them: the night's own are of rows that have passed it."""
    exempt = "made" if name in _STORED_ONLY else "false"
    duck.execute(f'create temp table "before {name}" as from previous')
    duck.execute(f'create or replace temp view previous as from "before {name}" where not {exempt}')
    [(rows,)] = duck.execute("select count(*) from previous").fetchall()
    run_step(duck, name, settings)
    count = count_rows(duck, name, "pairs", rows)
    rest = f'select {_STORED_ONLY[name]} from "before {name}" where {exempt}' if name in _STORED_ONLY else None
    duck.execute(f"create or replace temp view previous as {kept(name)}" + (f" union all by name {rest}" if rest else ""))
    return count


def _rows(file: Path, chosen: pa.Table, number: int) -> Iterator[pa.RecordBatch]:
    of_file = chosen.filter(pc.field("file_index") == number)["file_row_number"].combine_chunks().sort()
    yield from pq.read_table(file).take(of_file).to_batches()
