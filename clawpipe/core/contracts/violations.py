"""Find the rows and values that break their contract, in DuckDB."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import duckdb

from clawpipe.core.contracts.odcs import Contract
from clawpipe.core.contracts.reasons import identifier, literal, reasons_sql, value_faults
from clawpipe.core.contracts.schema import Layout, arrow_schema
from clawpipe.core.store.duck import have_different_columns


def create_violation_tables(duck: duckdb.DuckDBPyConnection, files: Sequence[Path], contract: Contract, layout: Layout) -> None:
    """Create two tables, ordered by position (`file_index`, `file_row_number` from 0):

    - `rejected`: one row for each faulty row: `row_id`, all its `reasons`, and the `row` as JSON;
    - `discarded`: one row for each value that becomes null, or is dropped with its column, in a valid row: `column`, `reason`.
    """
    duck.register("layout", arrow_schema(contract).empty_table())
    files_ = {"files": [str(file) for file in files], "mixed": have_different_columns(files)}
    faults = value_faults(contract) if contract.mode == "discard_value" else {}
    duck.execute(f"create temp table rejected as {_rejected_sql(contract, layout, faults)}", files_)
    if contract.mode == "discard_value":
        duck.execute(f"create temp table discarded as {_discarded_sql(layout, faults)}", files_)
    else:
        duck.execute('create temp table discarded (file_index bigint, file_row_number bigint, "column" varchar, reason varchar)')


Faults = dict[str, list[tuple[str, str]]]

# Missing columns of files come from the empty `layout`.
_ROWS = """
    from layout union all by name
    select *, file_index, file_row_number from read_parquet($files, union_by_name = $mixed)"""


def _rejected_sql(contract: Contract, layout: Layout, discardable: Faults) -> str:
    key = ", ".join(map(identifier, contract.key))
    names = [column.name for column in contract.columns] + list(layout.unknown)
    row = ", ".join(f"{literal(name)}: {identifier(_was(name) if name in discardable else name)}" for name in names)
    reasons = reasons_sql(contract, duplicate="(file_index, file_row_number) in (from repeated)")
    return f"""
        with repeated as ({_repeated_sql(key)}),
        judged as (
            select *, {reasons} as _reasons
            from ({_without_faults(discardable)})
        )
        select file_index, file_row_number, _reasons as reasons, to_json({{{row}}})::varchar as "row",
            coalesce(nullif(concat_ws('/', {key or "null"}), ''), 'file ' || file_index || ' row ' || file_row_number) as row_id
        from judged where len(_reasons) > 0
        order by file_index, file_row_number"""


def _repeated_sql(key: str) -> str:
    """Return SQL for the positions of rows with the key of an earlier row; it does not read the payload."""
    if not key:
        return "select 0 as file_index, 0 as file_row_number where false"
    return f"""
        select file_index, file_row_number from read_parquet($files) where concat({key}) <> ''
        qualify row_number() over (partition by {key} order by file_index, file_row_number) > 1"""


def _without_faults(discardable: Faults) -> str:
    """Return SQL for the rows with null in place of discarded values, which stay under another name."""
    checked = {name: " or ".join(fault for _, fault in faults) for name, faults in discardable.items() if faults}
    if not discardable:
        return _ROWS
    kept = ", ".join(f"{identifier(name)} as {identifier(_was(name))}" for name in discardable)
    replaced = ", ".join(
        f"case when {fault} then null else {identifier(name)} end as {identifier(name)}" for name, fault in checked.items()
    )
    return f"select * {f'replace ({replaced})' if replaced else ''}, {kept} from ({_ROWS})"


def _discarded_sql(layout: Layout, discardable: Faults) -> str:
    checks = [(name, reason, fault) for name, faults in discardable.items() for reason, fault in faults]
    checks += [(name, f"{name}: not in the contract", f"{identifier(name)} is not null") for name in layout.unknown]
    cases = ", ".join(
        f"case when {fault} then {{'column': {literal(name)}, 'reason': {literal(reason)}}} end" for name, reason, fault in checks
    )
    return f"""
        select file_index, file_row_number, value."column", value.reason
        from (select file_index, file_row_number, unnest(list_filter([{cases}], lambda v: v is not null)) as value from ({_ROWS}))
        where (file_index, file_row_number) not in (select file_index, file_row_number from rejected)
        order by file_index, file_row_number"""


def _was(name: str) -> str:
    return f"_was_{name}"
