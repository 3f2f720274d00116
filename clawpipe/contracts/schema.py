"""The Arrow side of a contract: its schema, and how files relate to it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from clawpipe.contracts.odcs import Contract, Property, load_contract
from clawpipe.errors import DataError

_SCALARS = {
    "string": pa.string(),
    "boolean": pa.bool_(),
    "i32": pa.int32(),
    "i64": pa.int64(),
    "f32": pa.float32(),
    "f64": pa.float64(),
}


def schema_of(name: str, version: str | None = None) -> pa.Schema:
    """The Arrow schema of a dataset.

    Every field is nullable, required ones too: a row with a fault must fit in, so that it can be set aside with a reason.

    Raises:
        NotFoundError: no such contract or version.
    """
    return arrow_schema(load_contract(name, version))


def arrow_schema(contract: Contract) -> pa.Schema:
    return pa.schema([pa.field(column.name, _arrow_type(column)) for column in contract.columns])


def file_schema(file: Path) -> pa.Schema:
    """The Arrow schema of a Parquet file.

    Raises:
        DataError: it is none.
    """
    try:
        return pq.read_schema(file)
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"no Parquet file: {error}", str(file)) from None


@dataclass(frozen=True)
class Layout:
    """How the columns of files relate to those of their contract.

    Attributes:
        exact: they are the contract's own, in order, names and types; nothing has to be cast.
        unknown: those that the contract lacks, with their types; its mode says what becomes of them.
    """

    exact: bool
    unknown: dict[str, pa.DataType]


def layout_of(schemas: Mapping[str, pa.Schema], contract: Contract) -> Layout:
    """The layout of files, given the schema of each by its place.

    A column that may be null, and is no part of the key, may be missing unless the contract is frozen: a later minor version
    added it, see `conformed`.

    Raises:
        DataError: a required column is missing, one is unknown where the mode allows none, or of a type that does not fit, or an
            unknown one has two types; the place and the column are named.
    """
    wanted = arrow_schema(contract)
    unknown: dict[str, pa.DataType] = {}
    for where, schema in schemas.items():
        _look_at_columns(schema, contract, where)
        for name in sorted(set(schema.names) - set(wanted.names)):
            kind = schema.field(name).type
            if unknown.setdefault(name, kind) != kind:
                raise DataError(f"column {name!r} is {kind}, and {unknown[name]} in another file", where, _fix(contract))
    return Layout(all(schema.equals(wanted) for schema in schemas.values()), unknown)


def _look_at_columns(schema: pa.Schema, contract: Contract, where: str) -> None:
    wanted, fix = arrow_schema(contract), _fix(contract)
    unknown = sorted(set(schema.names) - set(wanted.names))
    if unknown and contract.mode in ("freeze", "discard_row"):
        raise DataError(f"column {unknown[0]!r} is not in the contract of {contract.name!r}", where, fix)
    for column, field in zip(contract.columns, wanted, strict=True):
        if field.name not in schema.names:
            if not (column.required or column.primary_key or contract.mode == "freeze"):
                continue
            raise DataError(f"column {field.name!r} is missing", where, fix)
        have = schema.field(field.name).type
        if not _fits(have, field.type):
            raise DataError(f"column {field.name!r} is {have}, the contract of {contract.name!r} says {field.type}", where, fix)


def _fix(contract: Contract) -> str:
    return f"write it with clawpipe.contracts.schema_of({contract.name!r})"


def conformed(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """`table` with the columns of `schema` in its order and types; those that it lacks are null."""
    columns = [table[field.name] if field.name in table.column_names else pa.nulls(table.num_rows, field.type) for field in schema]
    return pa.table(columns, names=schema.names).cast(schema)


def _arrow_type(part: Property) -> pa.DataType:
    if part.items:
        return pa.list_(_arrow_type(part.items))
    if part.properties:
        return pa.struct([pa.field(field.name, _arrow_type(field)) for field in part.properties])
    return _SCALARS[part.logical_type_options.format or part.logical_type]


def _fits(have: pa.DataType, want: pa.DataType) -> bool:
    """Whether every value of type `have` is a value of type `want`."""
    if pa.types.is_struct(want):
        return (
            pa.types.is_struct(have)
            and [f.name for f in have] == [f.name for f in want]
            and all(map(_fits, _types(have), _types(want)))
        )
    if pa.types.is_list(want):
        return (pa.types.is_list(have) or pa.types.is_large_list(have)) and _fits(have.value_type, want.value_type)
    if pa.types.is_integer(want):
        return pa.types.is_signed_integer(have) and have.bit_width <= want.bit_width
    if pa.types.is_floating(want):
        return pa.types.is_floating(have) and have.bit_width <= want.bit_width
    return have == want or (pa.types.is_string(want) and pa.types.is_large_string(have))


def _types(struct: pa.DataType) -> list[pa.DataType]:
    return [field.type for field in struct]
