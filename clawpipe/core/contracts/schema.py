"""Translate a contract to an Arrow schema, and compare the columns of files with it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from clawpipe.core.contracts.odcs import Contract, Property, load_contract
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
    """Return the Arrow schema of a dataset.

    Every field is nullable, also required ones: a faulty row must fit in, so that it can be rejected with a reason.

    Raises:
        NotFoundError: the contract or version does not exist.
    """
    return arrow_schema(load_contract(name, version))


def arrow_schema(contract: Contract) -> pa.Schema:
    return pa.schema([pa.field(column.name, _arrow_type(column)) for column in contract.columns])


def file_schema(file: Path) -> pa.Schema:
    """Read the Arrow schema of a Parquet file.

    Raises:
        DataError: the file is not Parquet.
    """
    try:
        return pq.read_schema(file)
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"no Parquet file: {error}", str(file)) from None


@dataclass(frozen=True)
class Layout:
    """A comparison of the columns of files with those of their contract.

    Attributes:
        exact: whether order, names and types are equal, so that nothing has to be cast.
        unknown: columns that the contract lacks, with their types; its mode determines their treatment.
    """

    exact: bool
    unknown: dict[str, pa.DataType]


def layout_of(schemas: Mapping[str, pa.Schema], contract: Contract) -> Layout:
    """Return the layout of files, given the schema of each by its place.

    A nullable column outside the key may be missing unless the contract is frozen, because a later minor version may have added
    it; see `conformed`.

    Raises:
        DataError: a required column is missing, an unknown column is not allowed or has two types, or a type does not fit; the
            error names place and column.
    """
    wanted = arrow_schema(contract)
    unknown: dict[str, pa.DataType] = {}
    for where, schema in schemas.items():
        _check_columns(schema, contract, where)
        for name in sorted(set(schema.names) - set(wanted.names)):
            kind = schema.field(name).type
            if unknown.setdefault(name, kind) != kind:
                raise DataError(f"column {name!r} is {kind}, and {unknown[name]} in another file", where, _fix(contract))
    return Layout(all(schema.equals(wanted) for schema in schemas.values()), unknown)


def _check_columns(schema: pa.Schema, contract: Contract, where: str) -> None:
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
    return f"write it with clawpipe.core.contracts.schema_of({contract.name!r})"


def conformed(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return `table` with the columns of `schema` in its order and types; missing columns are null."""
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
