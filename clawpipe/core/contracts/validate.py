"""Apply a contract to a dataset: keep the valid rows, and reject the others with all their reasons."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from clawpipe.core.basics.json_types import JsonObject, Options
from clawpipe.core.contracts.odcs import EXTRA, Contract, contract_versions, folder_of, load_contract
from clawpipe.core.contracts.schema import Layout, arrow_schema, conformed, layout_of, schema_of
from clawpipe.core.contracts.violations import create_violation_tables
from clawpipe.core.store.artifacts import Store
from clawpipe.core.store.datasets import dataset_files, publish_dataset
from clawpipe.core.store.duck import session
from clawpipe.core.store.parts import rechunk
from clawpipe.core.store.refs import DatasetRef, StepResult
from clawpipe.errors import DataError, NotFoundError


def migrate(store: Store, ref: DatasetRef, contract: str, *, threads: int | None = None) -> DatasetRef:
    """Migrate a dataset to the newest major version of its contract; return it as it is if it has that version.

    Raises:
        DataError: the dataset is damaged, or a migration failed or gave other columns or another number of rows.
        NotFoundError: the contract, version or migration does not exist.
    """
    versions = contract_versions(contract)
    while ref.schema_version != versions[-1]:
        load_contract(contract, ref.schema_version)  # an unknown version is named as such
        ref = _step(store, ref, contract, versions[versions.index(ref.schema_version) + 1], threads)
    return ref


def migration(contract: str, old: str, new: str) -> str:
    """Return the SQL that migrates from one major version to the next.

    Raises:
        NotFoundError: there is no such migration.
    """
    file = folder_of(contract) / "migrations" / f"v{old}_to_v{new}.sql"
    if not file.is_file():
        what = f"no migration of {contract!r} from version {old} to {new}"
        raise NotFoundError(what, fix=f"write data_contracts/{contract}/migrations/{file.name}")
    return file.read_text(encoding="utf-8")


def _step(store: Store, ref: DatasetRef, contract: str, version: str, threads: int | None) -> DatasetRef:
    sql, files = migration(contract, ref.schema_version, version), dataset_files(store, ref)
    wanted = arrow_schema(load_contract(contract, version))
    where = f"{contract}/migrations/v{ref.schema_version}_to_v{version}.sql on {ref.name}/{ref.digest[:12]}"
    with session(store, files, threads) as duck:
        duck.register("layout", arrow_schema(load_contract(contract, ref.schema_version)).empty_table())
        rows = duck.read_parquet([str(file) for file in files], union_by_name=True)
        rows.create_view("files")
        duck.execute("create temp view old as from layout union all by name from files")
        try:
            reader = duck.sql(sql).to_arrow_reader()
            _same_columns(reader.schema, wanted, where)
            made = publish_dataset(store, ref.name, rechunk(reader, wanted), schema_version=version, parents=[ref.digest])
        except (duckdb.Error, pa.ArrowException) as error:
            raise DataError(f"the migration failed: {error}", where) from None
    if made.rows != ref.rows:
        raise DataError(f"the migration made {made.rows} rows of {ref.rows}", where, "a migration gives one row per row")
    return made


def _same_columns(have: pa.Schema, wanted: pa.Schema, where: str) -> None:
    if have.names != wanted.names:
        raise DataError(f"the migration gives the columns {have.names}, the contract has {wanted.names}", where)


def validate(store: Store, ref: DatasetRef, contract: str, *, threads: int | None = None) -> StepResult:
    """Return the rows of `ref` that keep the newest contract, in order; an older major version is migrated first.

    If nothing is rejected or cast, the result is `ref` itself. The first row with a key stays, later ones are duplicates. Narrower
    numbers are widened; columns of a later minor version are null. The contract's mode determines the treatment of other columns
    and of faulty values.

    Returns:
        output: the accepted rows; extras: "quarantine", if a row was rejected; filtered: each row once, under the first of
        its reasons in contract order, so that rows_in == rows_out + sum(filtered); details: "carried", the names of columns
        that went into `extra`, and "discarded", reason to count of values in accepted rows, where there are any.

    Raises:
        DataError: damaged, or a column is missing, unknown or of a type that does not fit.
        NotFoundError: no such contract, version or migration.
    """
    ref = migrate(store, ref, contract, threads=threads)
    terms = load_contract(contract, ref.schema_version)
    files = dataset_files(store, ref)
    layout = layout_of({f"{ref.name}/{ref.digest[:12]}/{file.name}": pq.read_schema(file) for file in files}, terms)
    with session(store, files, threads) as duck:
        create_violation_tables(duck, files, terms, layout)
        filtered = dict(duck.execute("select reasons[1], count(*) from rejected group by all order by all").fetchall())
        details = _details(duck, terms, layout)
        output, extras = ref, {}
        if filtered or details or not layout.exact:
            accepted = _accepted(duck, files, terms, layout)
            output = publish_dataset(store, ref.name, accepted, schema_version=ref.schema_version, parents=[ref.digest])
        if filtered:
            extras["quarantine"] = publish_dataset(store, "quarantine", _quarantine(duck, ref.name), parents=[ref.digest])
    return StepResult(output=output, extras=extras, rows_in=ref.rows, rows_out=output.rows, filtered=filtered, details=details)


def _details(duck: duckdb.DuckDBPyConnection, contract: Contract, layout: Layout) -> JsonObject:
    discarded = dict(duck.execute("select reason, count(*) from discarded group by all order by all").fetchall())
    carried = list(layout.unknown) if contract.mode == "evolve" else []
    return ({"carried": carried} if carried else {}) | ({"discarded": discarded} if discarded else {})


def _accepted(duck: duckdb.DuckDBPyConnection, files: list[Path], contract: Contract, layout: Layout) -> Iterator[pa.Table]:
    """Yield each file without rejected rows and discarded values."""
    for index, file in enumerate(files):
        table = pq.read_table(file)
        keep = ~_marked(duck, table.num_rows, "select file_row_number from rejected where file_index = $index", {"index": index})
        rows = conformed(table, arrow_schema(contract))
        query = 'select distinct "column" from discarded where file_index = $index'
        for (column,) in duck.execute(query, {"index": index}).fetchall():
            rows = _without_values(duck, rows, index, column)
        rows = rows.filter(pa.array(keep))
        if contract.mode == "evolve" and layout.unknown:
            rows = carried_along(rows, table.filter(pa.array(keep)), list(layout.unknown))
        yield rows


def _marked(duck: duckdb.DuckDBPyConnection, rows: int, query: str, parameters: Options) -> np.ndarray:
    """Return a mask [rows] that is True at the positions from a query."""
    marked = np.zeros(rows, dtype=bool)
    marked[duck.execute(query, parameters).fetchnumpy()["file_row_number"]] = True
    return marked


def _without_values(duck: duckdb.DuckDBPyConnection, rows: pa.Table, index: int, column: str) -> pa.Table:
    if column not in rows.column_names:  # an unknown one, which is gone already
        return rows
    query = 'select file_row_number from discarded where file_index = $index and "column" = $column'
    fault = pa.array(_marked(duck, rows.num_rows, query, {"index": index, "column": column}))
    field = rows.schema.field(column)
    values = pc.if_else(fault, pa.scalar(None, field.type), rows[column])  # pyright: ignore[reportAttributeAccessIssue]  # made at run time
    return rows.set_column(rows.column_names.index(column), field, values)


def carried_along(rows: pa.Table, source: pa.Table, unknown: list[str]) -> pa.Table:
    """Add the unknown columns of `source` to `extra`, except for nulls.

    If `extra` has the name already, the column is added as "column.<name>".
    """
    names = [name for name in unknown if name in source.column_names]
    values = source.select(names).to_pylist()
    texts = [with_extra(text, more) for text, more in zip(rows[EXTRA].to_pylist(), values, strict=True)]
    return rows.set_column(rows.column_names.index(EXTRA), rows.schema.field(EXTRA), pa.array(texts, pa.string()))


def with_extra(text: str | None, more: JsonObject) -> str | None:
    """Add the fields `more` to the JSON object `text`; values that JSON lacks (dates, bytes, NaN) become texts."""
    present = {name: value for name, value in more.items() if value is not None}
    if not present:
        return text
    known = json.loads(text or "{}")
    spelled = json.loads(json.dumps(present, default=str), parse_constant=str)
    return json.dumps(
        known | {f"column.{name}" if name in known else name: value for name, value in spelled.items()}, ensure_ascii=False
    )


def _quarantine(duck: duckdb.DuckDBPyConnection, dataset: str) -> Iterator[pa.Table]:
    query = 'select $dataset as dataset, row_id, reasons, "row" from rejected order by file_index, file_row_number'
    return rechunk(duck.sql(query, params={"dataset": dataset}).to_arrow_reader(), schema_of("quarantine"))
