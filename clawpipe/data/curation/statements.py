"""The SQL files of curation, and what every step that runs them does: its macros and functions, its parameters, its counts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import resources
from typing import Any

import duckdb

import clawpipe.data.curation
from clawpipe.core.basics.json_types import Options
from clawpipe.core.contracts.reasons import identifier
from clawpipe.core.contracts.schema import schema_of
from clawpipe.data.curation.counts import Count
from clawpipe.errors import DataError

_PARAMETERS: dict[str, frozenset[str]] = {}  # of each statement, which takes as long to parse as a small step to run
SQL = resources.files(clawpipe.data.curation) / "sql"


def running_mean(values: Sequence[float], decay: float) -> list[float]:
    """Return the exponential mean of the values before each value: b_1 = 0, b_(k+1) = decay * b_k + (1 - decay) * v_k.

    A baseline excludes its own value, which would bias the gradient. It begins at 0, the value of a neutral reward.
    """
    means, mean = [], 0.0
    for value in values:
        means.append(mean)
        mean = decay * mean + (1 - decay) * value
    return means


def largest_cap(sizes: Sequence[int], sessions: Sequence[int], free: int, share: float) -> int:
    """Return the largest limit of rows for each session, with which no session has more than `share` of the remaining rows.

    With a limit c, free + sum of min(size, c) rows remain, so that c <= share * (free + shorter + c * longer): `shorter` is the
    number of rows of the sessions below c, and `longer` the number of the other sessions. This holds for every c up to the largest
    one, because the right side grows ever more slowly.

    Args:
        sizes: the distinct numbers of rows of sessions, in ascending order.
        sessions: the number of sessions of each size.
        free: the number of rows without a session.

    Returns:
        At most the largest size; 0 if no limit works.
    """
    cap, shorter, longer = 0, free, sum(sessions)
    for size, count in zip(sizes, sessions, strict=True):
        room = 1 - share * longer
        best = size if room < 1e-9 else min(size, int(share * shorter / room + 1e-9))
        if best <= cap:
            return cap
        cap, shorter, longer = best, shorter + size * count, longer - count
        if cap < size:
            return cap
    return cap


def create_macros(duck: duckdb.DuckDBPyConnection) -> None:
    """Create the macros that the SQL files share, and empty tables with the columns that older files may lack."""
    for name in ("trajectories", "scores", "preference_pairs"):
        duck.register(f"{name}_layout", schema_of(name).empty_table())
    duck.execute(read_sql("macros"))


def create_functions(duck: duckdb.DuckDBPyConnection) -> None:
    """Create the functions that the SQL files call."""
    duck.create_function("running_mean", running_mean, ["DOUBLE[]", "DOUBLE"], "DOUBLE[]")
    duck.create_function("largest_cap", largest_cap, ["BIGINT[]", "BIGINT[]", "BIGINT", "DOUBLE"], "BIGINT")


def read_sql(name: str) -> str:
    return (SQL / f"{name}.sql").read_text(encoding="utf-8")


def used(duck: duckdb.DuckDBPyConnection, statement: str, settings: Mapping[str, Any]) -> Options:
    """Return the parameters that a statement names; DuckDB accepts no others."""
    if statement not in _PARAMETERS:
        [parsed] = duck.extract_statements(statement)
        _PARAMETERS[statement] = frozenset(parsed.named_parameters)
    return {name: settings[name] for name in _PARAMETERS[statement]}


def kept(name: str) -> str:
    """Return the query for the rows that a step kept."""
    return f'select * exclude (reason) from "{name}" where reason is null'


def run_step(duck: duckdb.DuckDBPyConnection, name: str, settings: Mapping[str, Any]) -> None:
    """Run a step on the view `previous`; its table has its name."""
    statement = f"create temp table {identifier(name)} as {read_sql(name)}"
    duck.execute(statement, used(duck, statement, settings))


def count_rows(duck: duckdb.DuckDBPyConnection, name: str, unit: str, rows: int) -> Count:
    """Count the rows that a step kept and filtered.

    Args:
        unit: what its rows are.
        rows: how many went in.

    Raises:
        DataError: the counts do not add up.
    """
    reasons = dict(duck.execute(f'select reason, count(*) from "{name}" group by all order by all').fetchall())
    left = reasons.pop(None, 0)
    if left + sum(reasons.values()) != rows:
        raise DataError(f"{rows} rows went in, {left} came out and {sum(reasons.values())} were filtered", f"curation step {name}")
    return Count(step=name, unit=unit, rows_in=rows, rows_out=left, filtered=reasons)
