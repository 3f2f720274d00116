"""Translate a contract to SQL: a condition for each reason to reject a row."""

from __future__ import annotations

from collections.abc import Iterator

from clawpipe.core.contracts.odcs import EXTRA, Contract, Property

_NO_OBJECT = f"case when json_valid({EXTRA}) then json_type({EXTRA}) <> 'OBJECT' else {EXTRA} is not null end"


def reasons_sql(contract: Contract, duplicate: str) -> str:
    """Return a DuckDB expression for the list of all reasons that apply to a row: columns first, then the key, then row rules.

    Args:
        contract: the contract.
        duplicate: SQL condition of a row with the key of an earlier row.
    """
    cases = ",\n".join(f"case when {fault} then {literal(reason)} end" for reason, fault in _checks(contract, duplicate))
    return f"list_filter([{cases}], lambda reason: reason is not null)"


def all_reasons(contract: Contract) -> list[str]:
    """Return every reason to reject a row, in the order of `reasons_sql`."""
    return [reason for reason, _ in _checks(contract, "")]


def _checks(contract: Contract, duplicate: str) -> list[tuple[str, str]]:
    """Return (reason, SQL condition) of every fault of a row."""
    checks = [check for column in contract.columns for check in _faults(column, identifier(column.name), column.name)]
    checks += [(f"{EXTRA}: not a JSON object", _NO_OBJECT)] if contract.mode == "evolve" else []
    checks += [(f"{', '.join(contract.key)}: duplicate", duplicate)] if contract.key else []
    return checks + [(rule.name, rule.fault) for rule in contract.rules]


def value_faults(contract: Contract) -> dict[str, list[tuple[str, str]]]:
    """Return (reason, SQL condition) of every fault of a value, by column, for the nullable columns."""
    free = (column for column in contract.columns if not (column.required or column.primary_key))
    return {column.name: list(_faults(column, identifier(column.name), column.name)) for column in free}


def identifier(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _faults(part: Property, value: str, path: str, depth: int = 0) -> Iterator[tuple[str, str]]:
    """Yield (reason, SQL condition) for a property and its parts; `value` is its SQL expression."""
    if part.required:
        yield f"{path}: required", f"{value} is null"
    yield from _scalar_faults(part, value, path)
    if part.items:
        item = f"item_{depth}"
        for reason, fault in _faults(part.items, item, f"{path}[]", depth + 1):
            yield reason, f"len(list_filter({value}, lambda {item}: {fault})) > 0"
    for field in part.properties:
        for reason, fault in _faults(field, f"{value}.{identifier(field.name)}", f"{path}.{field.name}", depth):
            yield reason, f"({value} is not null and {fault})"


def _scalar_faults(part: Property, value: str, path: str) -> Iterator[tuple[str, str]]:
    options = part.logical_type_options
    if part.logical_type == "number":
        yield f"{path}: not finite", f"not isfinite({value})"
    if part.allowed:
        yield f"{path}: not allowed", f"{value} not in ({', '.join(map(literal, part.allowed))})"
    if options.minimum is not None:
        yield f"{path}: below {options.minimum}", f"{value} < {options.minimum}"
    if options.exclusive_minimum is not None:
        yield f"{path}: not above {options.exclusive_minimum}", f"{value} <= {options.exclusive_minimum}"
    if options.maximum is not None:
        yield f"{path}: above {options.maximum}", f"{value} > {options.maximum}"
    if options.pattern:
        yield f"{path}: malformed", f"not regexp_full_match({value}, {literal(options.pattern)})"
    if shortest := options.min_length or options.min_items:
        yield f"{path}: shorter than {shortest}", f"len({value}) < {shortest}"
