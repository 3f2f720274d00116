"""Bring datasets of an older major version of their contract to the newest one, one SQL file a step.

`data_contracts/<name>/migrations/v1_to_v2.sql` is a select from `old`, the dataset with the columns of its version, that gives
the columns of the next: one row a row, in the same order.
"""

from __future__ import annotations

import duckdb
import pyarrow as pa

from clawpipe.contracts.odcs import contract_versions, folder_of, load_contract
from clawpipe.contracts.schema import arrow_schema
from clawpipe.errors import DataError, NotFoundError
from clawpipe.store.artifacts import Store
from clawpipe.store.datasets import dataset_files, publish_dataset
from clawpipe.store.duck import session
from clawpipe.store.parts import rechunk
from clawpipe.store.refs import DatasetRef


def migrate(store: Store, ref: DatasetRef, contract: str, *, threads: int | None = None) -> DatasetRef:
    """`ref` under the newest major version of its contract; itself if it is of that version already.

    Raises:
        DataError: damaged, or a migration failed on it, or gave other columns or another number of rows.
        NotFoundError: no such contract or version, or it has no migration.
    """
    versions = contract_versions(contract)
    while ref.schema_version != versions[-1]:
        load_contract(contract, ref.schema_version)  # an unknown version is named as such
        ref = _step(store, ref, contract, versions[versions.index(ref.schema_version) + 1], threads)
    return ref


def migration(contract: str, old: str, new: str) -> str:
    """The SQL from one major version to the next.

    Raises:
        NotFoundError: there is none.
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
        raise DataError(f"the migration made {made.rows} rows of {ref.rows}", where, "a migration gives one row a row")
    return made


def _same_columns(have: pa.Schema, wanted: pa.Schema, where: str) -> None:
    if have.names != wanted.names:
        raise DataError(f"the migration gives the columns {have.names}, the contract has {wanted.names}", where)
