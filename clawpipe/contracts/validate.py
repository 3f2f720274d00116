"""Apply a contract to a dataset: what keeps it goes on, what breaks it is set aside with every reason."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from clawpipe.contracts.odcs import Contract, load_contract
from clawpipe.contracts.reasons import identifier, literal, reasons_sql
from clawpipe.contracts.schema import arrow_schema, conformed, conforms, schema_of
from clawpipe.store.artifacts import Store
from clawpipe.store.datasets import dataset_files, publish_dataset
from clawpipe.store.duck import session
from clawpipe.store.parts import rechunk
from clawpipe.store.refs import DatasetRef, StepResult


def validate(store: Store, ref: DatasetRef, contract: str, *, threads: int | None = None) -> StepResult:
    """The rows of `ref` that keep the contract of the dataset's schema version, in their order.

    Nothing set aside and nothing cast: the result is `ref` itself, so an unchanged dataset keeps its name. The first row with a
    key stays, later ones are duplicates. Numbers narrower than the contract's are widened; columns that a later minor version
    of the contract added are null.

    Returns:
        output: the accepted rows; extras: "quarantine", if a row was set aside; set_aside: each row once, under the first of
        its reasons in contract order, so that rows_in == rows_out + sum(set_aside).

    Raises:
        DataError: damaged, or a column is missing, unknown or of a type that does not fit.
        NotFoundError: no such contract or version.
    """
    terms = load_contract(contract, ref.schema_version)
    files = dataset_files(store, ref)
    exact = {conforms(pq.read_schema(file), terms, f"{ref.name}/{ref.digest[:12]}/{file.name}") for file in files} == {True}
    with session(store, files, threads) as duck:
        duck.register("layout", arrow_schema(terms).empty_table())
        duck.execute(f"create temp table rejected as {_rejected_sql(terms)}", {"files": [str(file) for file in files]})
        set_aside = dict(duck.execute("select reasons[1], count(*) from rejected group by all order by all").fetchall())
        output, extras = ref, {}
        if set_aside or not exact:
            accepted = _accepted(duck, files, arrow_schema(terms))
            output = publish_dataset(store, ref.name, accepted, schema_version=ref.schema_version, parents=[ref.digest])
        if set_aside:
            extras["quarantine"] = publish_dataset(store, "quarantine", _quarantine(duck, ref.name), parents=[ref.digest])
    return StepResult(output=output, extras=extras, rows_in=ref.rows, rows_out=output.rows, set_aside=set_aside)


def _rejected_sql(contract: Contract) -> str:
    """One narrow row a row at fault: its position, its key, its reasons, and itself as JSON. `layout` holds the columns."""
    key = ", ".join(map(identifier, contract.key))
    row = ", ".join(f"{literal(column.name)}: {identifier(column.name)}" for column in contract.columns)
    reasons = reasons_sql(contract, duplicate="(file_index, file_row_number) in (from repeated)")
    return f"""
        with repeated as ({_repeated_sql(key)}),
        judged as (
            select *, file_index, file_row_number, {reasons} as _reasons
            from (
                from layout union all by name
                select *, file_index, file_row_number from read_parquet($files, union_by_name = true)
            )
        )
        select file_index, file_row_number, _reasons as reasons, to_json({{{row}}})::varchar as "row",
            coalesce(nullif(concat_ws('/', {key or "null"}), ''), 'file ' || file_index || ' row ' || file_row_number) as row_id
        from judged where len(_reasons) > 0
        order by file_index, file_row_number"""


def _repeated_sql(key: str) -> str:
    """Positions of the rows whose key an earlier row has; the payload is not touched."""
    if not key:
        return "select 0 as file_index, 0 as file_row_number where false"
    return f"""
        select file_index, file_row_number from read_parquet($files) where concat({key}) <> ''
        qualify row_number() over (partition by {key} order by file_index, file_row_number) > 1"""


def _accepted(duck: duckdb.DuckDBPyConnection, files: list[Path], schema: pa.Schema) -> Iterator[pa.Table]:
    """Each file without its rejected rows."""
    for index, file in enumerate(files):
        rejected = duck.execute("select file_row_number from rejected where file_index = $index", {"index": index}).fetchnumpy()
        table = conformed(pq.read_table(file), schema)
        keep = np.ones(table.num_rows, dtype=bool)
        keep[rejected["file_row_number"]] = False
        yield table.filter(pa.array(keep))


def _quarantine(duck: duckdb.DuckDBPyConnection, dataset: str) -> Iterator[pa.Table]:
    query = 'select $dataset as dataset, row_id, reasons, "row" from rejected order by file_index, file_row_number'
    return rechunk(duck.sql(query, params={"dataset": dataset}).to_arrow_reader(), schema_of("quarantine"))
