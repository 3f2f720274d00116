"""Curation: scored trajectories become the samples to train on, by the SQL files beside this module.

Files run in the order of their numbers; one with a method in its name (`50_sft_...`) runs for that method only. A step selects
every row of `previous`, the rows that the step before kept, and a column `reason`: NULL keeps the row, anything else sets it aside.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any

import duckdb

import clawpipe.curation
from clawpipe.config.night import Curation
from clawpipe.contracts.schema import schema_of
from clawpipe.errors import ConfigError, DataError
from clawpipe.store.artifacts import Store
from clawpipe.store.datasets import dataset_files, publish_dataset
from clawpipe.store.duck import session
from clawpipe.store.parts import rechunk
from clawpipe.store.refs import DatasetRef, StepResult

METHODS = ("grpo", "sft")
_SQL = resources.files(clawpipe.curation) / "sql"
_LAST = "70_samples"


@dataclass(frozen=True)
class Count:
    """What one step did to the rows."""

    step: str
    rows_in: int
    rows_out: int
    set_aside: dict[str, int]

    def as_dict(self) -> dict[str, Any]:
        return {"step": self.step, "rows_in": self.rows_in, "rows_out": self.rows_out, "set_aside": self.set_aside}


def curate(
    store: Store,
    trajectories: Sequence[DatasetRef],
    scores: Sequence[DatasetRef],
    items: DatasetRef,
    config: Curation,
    method: str,
    *,
    threads: int | None = None,
) -> StepResult:
    """The `samples` dataset for `method` ("grpo" or "sft"): filtered, decontaminated against held-out `items`, with advantages.

    An empty result is a result: the counts in `details["steps"]` say why.

    Returns:
        output: samples, ordered by group, rollout index and id; details: steps (name, rows_in, rows_out, set_aside), groups,
        and where there are rows reward_mean, success_rate (of every scored trajectory), tokens, trained_tokens.

    Raises:
        ConfigError: no such method.
        DataError: no dataset of trajectories or of scores, or a damaged one.
    """
    if method not in METHODS:
        raise ConfigError(f"no curation for method {method!r}", "train.method", f"one of {', '.join(METHODS)}")
    paths = {
        "trajectories": _paths(store, "trajectories", trajectories),
        "scores": _paths(store, "scores", scores),
        "items": _paths(store, "task_items", [items]),
    }
    settings = {**paths, **config.model_dump()}
    with session(store, (path for group in paths.values() for path in group), threads) as duck:
        duck.execute(_read("words"))
        counts = list(_run_steps(duck, method, settings, rows=sum(ref.rows for ref in trajectories)))
        details = _summary(duck)
        samples = duck.sql(_read(_LAST), params=_used(duck, _read(_LAST), settings)).to_arrow_reader()
        parents = [ref.digest for ref in (*trajectories, *scores, items)]
        output = publish_dataset(store, "samples", rechunk(samples, schema_of("samples")), parents=parents)
    return _result(output, counts, details)


def step_names(method: str) -> list[str]:
    """The steps that decide about rows for `method`, in order."""
    names = sorted(file.name.removesuffix(".sql") for file in _SQL.iterdir() if file.name[0].isdigit())
    others = {other for other in METHODS if other != method}
    return [name for name in names if name.split("_")[1] not in others and name != _LAST]


def _run_steps(duck: duckdb.DuckDBPyConnection, method: str, settings: Mapping[str, Any], rows: int) -> Iterator[Count]:
    for name in step_names(method):
        statement = f'create temp table "{name}" as {_read(name)}'
        duck.execute(statement, _used(duck, statement, settings))
        count = _count(duck, name, rows)
        duck.execute(f'create or replace temp view previous as select * exclude (reason) from "{name}" where reason is null')
        rows = count.rows_out
        yield count


def _count(duck: duckdb.DuckDBPyConnection, name: str, rows: int) -> Count:
    reasons = dict(duck.execute(f'select reason, count(*) from "{name}" group by all order by all').fetchall())
    kept = reasons.pop(None, 0)
    if kept + sum(reasons.values()) != rows:
        raise DataError(f"{rows} rows went in, {kept} came out and {sum(reasons.values())} were set aside", f"curation step {name}")
    return Count(name, rows, kept, reasons)


def _summary(duck: duckdb.DuckDBPyConnection) -> dict[str, Any]:
    """Figures of the batch; one that cannot be computed is absent."""
    cursor = duck.execute(_read("summary"))
    [row] = cursor.fetchall()
    return {column[0]: value for column, value in zip(cursor.description or [], row, strict=True) if value is not None}


def _result(output: DatasetRef, counts: Sequence[Count], details: dict[str, Any]) -> StepResult:
    set_aside: dict[str, int] = {}
    for count in counts:
        for reason, rows in count.set_aside.items():
            set_aside[reason] = set_aside.get(reason, 0) + rows
    steps = [*counts, Count(_LAST, counts[-1].rows_out, output.rows, {})]
    details = {"steps": [count.as_dict() for count in steps], **details}
    return StepResult(output=output, rows_in=counts[0].rows_in, rows_out=output.rows, set_aside=set_aside, details=details)


def _read(name: str) -> str:
    return (_SQL / f"{name}.sql").read_text(encoding="utf-8")


def _used(duck: duckdb.DuckDBPyConnection, statement: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters that a statement names; DuckDB takes no others."""
    [parsed] = duck.extract_statements(statement)
    return {name: settings[name] for name in parsed.named_parameters}


def _paths(store: Store, what: str, refs: Sequence[DatasetRef]) -> list[str]:
    if not refs:
        raise DataError(f"curation needs at least one dataset of {what}")
    return [str(file) for ref in refs for file in dataset_files(store, ref)]
