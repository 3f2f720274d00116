"""Run the SQL steps of curation on one partition, count their rows, and publish the payload of the rows that are left.

The SQL files beside this module run in the order of their numbers; one with a family of methods in its name (`50_sft_...`,
`50_policy_...`) runs for those methods only. A step selects every row of `previous`, the rows that the step before kept, and a
column `reason`: NULL keeps the row, any other value filters it. An idle step does not run, but is counted. Rows are trajectories;
for methods on pairs the step `60_pairs_made` makes pairs of them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import accumulate
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa

from clawpipe.core.config.methods import METHODS
from clawpipe.core.contracts.odcs import newest_version
from clawpipe.core.contracts.reasons import identifier
from clawpipe.core.contracts.schema import schema_of
from clawpipe.core.store.artifacts import Store, staging
from clawpipe.core.store.datasets import dataset_files, publish_dataset
from clawpipe.core.store.duck import have_different_columns, release_memory, session
from clawpipe.core.store.parts import rechunk
from clawpipe.core.store.refs import DatasetRef
from clawpipe.data.curation.counts import Count, Decided
from clawpipe.data.curation.joined_tables import register
from clawpipe.data.curation.measures import in_order
from clawpipe.data.curation.partitions import Partition, score_paths
from clawpipe.data.curation.row_ranges import measure_range, payload, rows_inside
from clawpipe.data.curation.statements import SQL, count_rows, create_functions, create_macros, kept, read_sql, used

# Columns of a side, and their names in a pair.
_OWN = {"id": "{}_id", "token_ids": "{}_token_ids", "loss_mask": "{}_loss_mask", "reply": "{}"}
_ROWS = 2048


def joined(sides: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
    """Join alternating rows, a chosen side and its rejected side, to pairs. Common columns come from the chosen side."""
    names = schema_of("preference_pairs").names
    for table in rechunk(sides, sides.schema, _ROWS):
        chosen, rejected = (table.take(np.arange(first, table.num_rows, 2)) for first in (0, 1))
        columns = {name: chosen[name] for name in table.column_names if name not in _OWN}
        for side, rows in (("chosen", chosen), ("rejected", rejected)):
            columns |= {named.format(side): rows[own] for own, named in _OWN.items()}
        yield from pa.table({name: columns[name] for name in names}).to_batches()


FAMILIES = frozenset().union(*(method.families for method in METHODS.values()))
_PAIRING, _WEIGHING = "60_pairs_made", "69_weights"
_LOOKED_BACK_AT = ("", "10_join", "50_pairs_groups")  # tables that later steps and the figures read
_BY_GROUP = ("60_pairs_made", "65_pairs_choice")  # these compare rows of one group only
_SLICE = 1_000_000  # rows of such a step at a time: a self-join of ten times as many does not fit into memory
_BATCH = 2048  # rows with their payload on their way out of DuckDB
# Of conversations that somebody had, each row is noted with its reason; of rollouts the counts are enough.
_CAPTURED = "create temp table captured as select distinct trajectory_id from {name} where source = 'captured'"
_LEFT_OUT = "create temp table left_out (trajectory_id varchar, reason varchar)"
_LEAVE_OUT = """
    insert into left_out
    select trajectory_id, reason from {name} where reason is not null and trajectory_id in (from captured)"""
_AS_QUARANTINE = """
    select 'trajectories' as dataset, trajectory_id as row_id, [reason] as reasons,
        to_json({trajectory_id: trajectory_id})::varchar as row
    from left_out order by trajectory_id"""


def decide(
    store: Store,
    partition: Partition,
    items: DatasetRef,
    earlier_items: Sequence[DatasetRef],
    method: str,
    settings: Mapping[str, Any],
    idle: Collection[str],
    tables: Mapping[str, pa.Table],
    threads: int | None = None,
    memory: str | None = None,
) -> Decided:
    """Run the steps on one partition and publish the remaining rows, in order.

    Args:
        settings: a value for each `$name` of a step, besides the paths of files.
        idle: the steps that would keep every row.
        tables: see clawpipe.data.curation.joined_tables.
    """
    measure_ranges = [measure_range(store, row_range) for row_range in partition.row_ranges]
    payloads = [payload(store, row_range) for row_range in partition.row_ranges]
    paths = {
        "trajectories": [file for one in payloads for file in one.files],
        "measures": [file for one in measure_ranges for file in one.files],
        "scores": score_paths(store, partition.scores),
        "items": [str(file) for file in dataset_files(store, items)],
        "all_items": [str(file) for ref in (items, *earlier_items) for file in dataset_files(store, ref)],
    }
    layouts = {f"mixed_{name}": have_different_columns(paths[name]) for name in ("trajectories", "scores")}
    firsts = accumulate((len(one.files) for one in payloads), initial=0)
    offsets = [first - one.skipped for first, one in zip(firsts, payloads, strict=False)]
    settings = {**settings, **paths, **layouts, **rows_inside(measure_ranges, "first_files", offsets)}
    kind, rows = METHODS[method], sum(row_range.rows for row_range in partition.row_ranges)
    dataset = kind.dataset
    with _workbench(store, paths, threads, memory, ordered=not kind.pairs) as duck:
        register(duck, tables)
        duck.read_parquet(paths["measures"]).select("trajectory_id", "runs").create_view("runs")
        counts = list(_run_steps(duck, method, settings, rows, idle))
        left_out = _publish_left_out(store, duck, partition.parents(items))
        figures = _figures(duck, "summary", settings) | (_figures(duck, "summary_pairs", settings) if kind.pairs else {})
        slices = {} if _WEIGHING in idle else _slices(duck)
        with _payload(store, duck, last_step(method), settings) as wide:
            parts = rechunk(joined(wide) if kind.pairs else wide, schema_of(dataset))
            output = publish_dataset(
                store, dataset, parts, schema_version=newest_version(dataset), parents=partition.parents(items)
            )
    last = Count(step=last_step(method), unit=counts[-1].unit, rows_in=counts[-1].rows_out, rows_out=output.rows, filtered={})
    return Decided(output=output, counts=(*counts, last), figures=figures, left_out=left_out, slices=slices)


def step_names(method: str) -> list[str]:
    """Return the steps that filter rows for `method`, in order."""
    names = sorted(file.name.removesuffix(".sql") for file in SQL.iterdir() if file.name[0].isdigit())
    others = FAMILIES - METHODS[method].families
    return [name for name in names if name.split("_")[1] not in others and not name.startswith("70_")]


def last_step(method: str) -> str:
    """Return the step that reads the payload of the remaining rows."""
    return "70_pairs" if METHODS[method].pairs else "70_samples"


@contextmanager
def _workbench(
    store: Store, paths: Mapping[str, list[str]], threads: int | None, memory: str | None, ordered: bool
) -> Iterator[duckdb.DuckDBPyConnection]:
    """Yield a session with the functions of the SQL files. Sums of rewards need ordered rows; pairs need no sums."""
    with session(store, (path for group in paths.values() for path in group), threads, memory, ordered) as duck:
        create_functions(duck)
        create_macros(duck)
        yield duck


def _run_steps(
    duck: duckdb.DuckDBPyConnection, method: str, settings: Mapping[str, Any], rows: int, idle: Collection[str]
) -> Iterator[Count]:
    """Run the steps in order; a step in `idle` only counts its rows."""
    unit, behind = "trajectories", ""
    duck.execute(_LEFT_OUT)
    for name in step_names(method):
        if name in idle:
            yield Count(step=name, unit=unit, rows_in=rows, rows_out=rows, filtered={})
            continue
        _decide(duck, name, behind, settings, -(-rows // _SLICE) if name in _BY_GROUP else 1)
        if name == _PAIRING:
            unit = "pairs"
            [(rows,)] = duck.execute(f'select count(*) from "{name}"').fetchall()
        count = count_rows(duck, name, unit, rows)
        if not behind:
            duck.execute(_CAPTURED.format(name=identifier(name)))
        if unit == "trajectories" and count.filtered:
            duck.execute(_LEAVE_OUT.format(name=identifier(name)))
        duck.execute(f"create or replace temp view previous as {kept(name)}")
        if behind not in _LOOKED_BACK_AT:
            duck.execute(f'drop table "{behind}"')
        behind, rows = name, count.rows_out
        yield count


def _decide(duck: duckdb.DuckDBPyConnection, name: str, behind: str, settings: Mapping[str, Any], slices: int) -> None:
    """Run a step on the rows that the step `behind` kept, all at once or in slices of whole groups."""
    for part in range(max(slices, 1)):
        if slices > 1:
            duck.execute(f"create or replace temp view previous as {kept(behind)} and hash(group_id) % {slices} = {part}")
        into = f'insert into "{name}"' if part else f'create temp table "{name}" as'
        statement = f"{into} {read_sql(name)}"
        duck.execute(statement, used(duck, statement, settings))


def _publish_left_out(store: Store, duck: duckdb.DuckDBPyConnection, parents: Sequence[str]) -> DatasetRef | None:
    """Publish which captured rows were filtered and why; None if none were."""
    rows = duck.sql(_AS_QUARANTINE).to_arrow_table()
    if not rows.num_rows:
        return None
    schema = schema_of("quarantine")
    return publish_dataset(store, "quarantine", [rows.select(schema.names).cast(schema)], parents=parents)


@contextmanager
def _payload(
    store: Store, duck: duckdb.DuckDBPyConnection, name: str, settings: Mapping[str, Any]
) -> Iterator[pa.RecordBatchReader]:
    """Yield the rows of the last step, in order. The tables of the steps are dropped first."""
    [(rows, tokens)] = duck.execute("select count(*), coalesce(sum(length), 0) from previous").fetchall()
    duck.execute("create temp table kept as from previous")
    duck.execute("create or replace temp view previous as from kept")
    for (table,) in duck.execute("select table_name from duckdb_tables() where temporary and table_name <> 'kept'").fetchall():
        duck.execute(f"drop table {identifier(table)}")
    release_memory()
    with staging(store.root, "rows") as directory:
        wide = duck.sql(read_sql(name), params=used(duck, read_sql(name), settings)).to_arrow_reader(_BATCH)
        yield in_order(wide, rows * (2 if name == "70_pairs" else 1), int(tokens), directory)


def _slices(duck: duckdb.DuckDBPyConnection) -> dict[str, dict[str, int | float]]:
    """Return rows and share of the loss by slice; rows without a task item are called "other"."""
    rows = duck.execute(read_sql("summary_slices")).fetchall()
    return {name or "other": {"rows": count, "share": round(share, 6)} for name, count, share in rows}


def _figures(duck: duckdb.DuckDBPyConnection, name: str, settings: Mapping[str, Any]) -> dict[str, int | float | None]:
    """Return the figures of the batch; one that cannot be computed is None."""
    cursor = duck.execute(read_sql(name), used(duck, read_sql(name), settings))
    [row] = cursor.fetchall()
    return {column[0]: value for column, value in zip(cursor.description or [], row, strict=True)}
