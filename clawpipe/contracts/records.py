"""JSON records against the types of a contract: a value that its column cannot hold is told, never bent until it fits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from clawpipe.contracts.odcs import EXTRA, Contract, Property
from clawpipe.contracts.validate import with_extra

_F32, _F64 = 3.4028234663852886e38, 1.7976931348623157e308
_RANGES: dict[tuple[str, type], tuple[float, float]] = {  # of floating columns: the integers that they hold exactly
    ("i32", int): (-(2**31), 2**31 - 1),
    ("i64", int): (-(2**63), 2**63 - 1),
    ("f32", int): (-(2**24), 2**24),
    ("f64", int): (-(2**53), 2**53),
    ("f32", float): (-_F32, _F32),
    ("f64", float): (-_F64, _F64),
}


class Typed(NamedTuple):
    """A record as a row of its contract: `row` has a null in each of the `wrong` columns, and `reasons` says why."""

    row: dict[str, Any]
    wrong: tuple[str, ...]
    reasons: tuple[str, ...]
    carried: tuple[str, ...]
    discarded: tuple[str, ...]


def typed(record: Mapping[str, Any], contract: Contract) -> Typed:
    """The row that a record is; what its columns cannot hold, and fields that the contract lacks, as its mode says."""
    columns = {column.name: column for column in contract.columns}
    faults = {name: tuple(dict.fromkeys(_misfits(record.get(name), column, name))) for name, column in columns.items()}
    free = {name for name, column in columns.items() if not (column.required or column.primary_key)}
    lenient = free if contract.mode == "discard_value" else set()
    row = {name: None if faults[name] else record.get(name) for name in columns}
    unknown = {name: value for name, value in record.items() if name not in columns and value is not None}
    strangers = tuple(f"{name}: not in the contract" for name in unknown)
    if contract.mode == "evolve" and isinstance(row[EXTRA], str | None):
        row[EXTRA] = _joined(row[EXTRA], unknown)
    return Typed(
        row,
        wrong=tuple(name for name, found in faults.items() if found and name not in lenient),
        reasons=tuple(reason for name, found in faults.items() if name not in lenient for reason in found)
        + (strangers if contract.mode in ("freeze", "discard_row") else ()),
        carried=tuple(unknown) if contract.mode == "evolve" else (),
        discarded=tuple(reason for name in columns if name in lenient for reason in faults[name])
        + (strangers if contract.mode == "discard_value" else ()),
    )


def _joined(text: str | None, unknown: dict[str, Any]) -> str | None:
    try:
        return with_extra(text, unknown)
    except (ValueError, TypeError):  # no JSON object: a fault that is told by the contract
        return text


def _misfits(value: Any, part: Property, path: str) -> Iterator[str]:
    """Reasons why a JSON value is none of its property; null always is one, and required values are looked at elsewhere."""
    if value is None:
        return
    kinds = {"string": str, "boolean": bool, "integer": int, "number": int | float, "object": dict, "array": list}
    if not isinstance(value, kinds[part.logical_type]) or (isinstance(value, bool) and part.logical_type != "boolean"):
        article = "an" if part.logical_type[0] in "aio" else "a"
        yield f"{path}: not {article} {part.logical_type}"
    elif isinstance(value, int | float) and part.logical_type_options.format:
        yield from _out_of_range(value, part.logical_type_options.format, path)
    elif isinstance(value, list) and part.items:
        for item in value:
            yield from _misfits(item, part.items, f"{path}[]")
    elif isinstance(value, dict):
        for field in part.properties:
            yield from _misfits(value.get(field.name), field, f"{path}.{field.name}")
        known = {field.name for field in part.properties}
        yield from (f"{path}.{name}: not in the contract" for name in value if name not in known)


def _out_of_range(value: int | float, width: str, path: str) -> Iterator[str]:
    lowest, highest = _RANGES[width, type(value)]
    if not lowest <= value <= highest:
        yield f"{path}: out of range"
