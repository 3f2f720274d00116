"""Curation: scored trajectories become samples or preference pairs to train on, by the SQL files beside this module.

What they want to know of tokens and messages is measured first, once a dataset (clawpipe.curation.measures). Then the files run in
the order of their numbers; one with a family of methods in its name (`50_sft_...`, `50_policy_...`) runs for those methods only. A
step selects every row of `previous`, the rows that the step before kept, and a column `reason`: NULL keeps the row, anything else
sets it aside. A step of which nothing is asked does not run and is counted all the same. Rows are trajectories, until for dpo the
step `60_dpo_pairs` makes pairs of them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import resources
from typing import Any

import duckdb
import pyarrow as pa

import clawpipe.curation
from clawpipe.config.curation import Curation
from clawpipe.contracts.odcs import newest_version
from clawpipe.contracts.reasons import identifier
from clawpipe.contracts.schema import schema_of
from clawpipe.curation.baseline import running_mean
from clawpipe.curation.facts import register
from clawpipe.curation.measures import measured, open_words
from clawpipe.curation.ordering import in_order
from clawpipe.curation.parameters import idle_steps, parameters, wants
from clawpipe.curation.shares import largest_cap
from clawpipe.curation.sides import joined
from clawpipe.errors import ConfigError, DataError
from clawpipe.store.artifacts import Store, staging
from clawpipe.store.datasets import dataset_files, publish_dataset
from clawpipe.store.duck import give_back, mixed, session
from clawpipe.store.parts import rechunk
from clawpipe.store.refs import DatasetRef, StepResult

METHODS = ("sft", "grpo", "ppo", "dpo", "opd", "combine")
FAMILIES = {
    **{method: {method} for method in METHODS},
    "policy": {"grpo", "opd", "combine"},  # advantages are known before training
    "ratio": {"grpo", "opd", "combine", "ppo"},  # the loss compares with the policy that sampled
    "outcome": {"sft", "dpo"},  # the verifier's verdict decides
}
_SQL = resources.files(clawpipe.curation) / "sql"
_PAIRING = "60_dpo_pairs"
_LOOKED_BACK_AT = ("", "10_join", "50_dpo_groups")  # later steps and the figures read their tables
_BY_GROUP = ("60_dpo_pairs", "65_dpo_choice")  # nothing in them looks beyond a group
_SLICE = 1_000_000  # rows of such a step at a time: a join of ten times as many with itself does not fit into memory
_BATCH = 2048  # rows with their payload on their way out of DuckDB
_NO_FACTS: Mapping[str, pa.Table] = {}


@dataclass(frozen=True)
class Count:
    """What one step did to the rows. `unit` is what a row is: a trajectory or a pair."""

    step: str
    unit: str
    rows_in: int
    rows_out: int
    set_aside: dict[str, int]

    def as_dict(self) -> dict[str, Any]:
        return {
            "step": self.step,
            "unit": self.unit,
            "rows_in": self.rows_in,
            "rows_out": self.rows_out,
            "set_aside": self.set_aside,
        }


def curate(
    store: Store,
    trajectories: Sequence[DatasetRef],
    scores: Sequence[DatasetRef],
    items: DatasetRef,
    config: Curation,
    method: str,
    *,
    weights: tuple[float, float] = (1.0, 0.0),
    hint: str = "text",
    versions: Sequence[str] = (),
    facts: Mapping[str, pa.Table] = _NO_FACTS,
    threads: int | None = None,
    memory: str | None = None,
) -> StepResult:
    """What `method` trains on: filtered, decontaminated against held-out `items`, with advantages, rewards or in pairs.

    An empty result is a result: the counts in `details["steps"]` say why.

    Args:
        weights: of the reward's terms and of the hinted teacher's, as clawpipe.training.methods.weights_of gives them; grpo, opd
            and combine keep a row if a term of a weight above 0 has something to say about it.
        hint: form of hindsight that the teacher is shown, "text" or "demonstration"; a row without it has no hint.
        versions: policy versions, the newest first, against which age is counted; see `config.needs_versions`.
        facts: narrow tables about trajectories that steps read by name, of the layouts in clawpipe.curation.facts.LAYOUTS; one that
            is absent is empty.
        memory: most that DuckDB's buffers may take, as "512MB"; None takes half of the machine's.

    Returns:
        output: `samples`, ordered by group, rollout index and id; for dpo `preference_pairs`, ordered by group, margin (largest
        first) and ids. set_aside counts trajectories, so that rows_in == rows_out + sum(set_aside); for dpo rows_in ==
        details["paired"] + sum(set_aside), where a trajectory of which no pair was kept is set aside as "in no pair".
        details: steps (name, unit, rows_in, rows_out, set_aside), groups, and where there are rows reward_mean, success_rate (of
        every scored trajectory), tokens, trained_tokens; for dpo also groups_without_success and groups_without_failure.

    Raises:
        ConfigError: no such method, no versions where age decides, or tables that do not fit into `memory`, spilled or not.
        DataError: facts that no step reads, no dataset of trajectories or of scores, or a damaged one.
    """
    if method not in METHODS:
        raise ConfigError(f"no curation for method {method!r}", "train.method", f"one of {', '.join(METHODS)}")
    if config.needs_versions and not versions:
        raise ConfigError("curation does not know which policy version is the newest", "curation", "hand it the versions")
    given = {"trajectories": trajectories, "scores": scores, "task_items": [items]}
    paths = {name: _paths(store, name, refs) for name, refs in given.items()}
    paths["items"] = paths.pop("task_items")
    wanted = wants(config, method)
    with _fitting_into(memory):
        narrow = [measured(store, ref, wanted, threads, memory) for ref in trajectories]
    paths["measures"] = _paths(store, "measures", narrow)
    told = {"method": method, "w_rl": weights[0], "w_opd": weights[1], "hint": hint, "versions": list(versions)}
    layouts = {f"mixed_{name}": mixed(paths[name]) for name in ("trajectories", "scores")}
    told |= {"first_files": _first_files(store, trajectories, narrow)}
    settings = {**paths, **layouts, **told, **wanted, **parameters(config)}
    rows, dataset = sum(ref.rows for ref in trajectories), _dataset_name(method)
    with _fitting_into(memory), _workbench(store, paths, threads, memory, ordered=method != "dpo") as duck:
        register(duck, facts)
        counts = list(_run_steps(duck, method, settings, rows, idle_steps(config, facts)))
        details = _figures(duck, "summary") | (_figures(duck, "summary_pairs") if method == "dpo" else {})
        parents = [ref.digest for ref in (*trajectories, *scores, items)]
        with _payload(store, duck, _last(method), settings) as payload:
            parts = rechunk(joined(payload) if method == "dpo" else payload, schema_of(dataset))
            output = publish_dataset(store, dataset, parts, schema_version=newest_version(dataset), parents=parents)
    return _result(output, counts, details, _last(method))


@contextmanager
def _fitting_into(memory: str | None) -> Iterator[None]:
    """Raises ConfigError where DuckDB runs out of it, directly or behind a reader of pyarrow's."""
    try:
        yield
    except (duckdb.OutOfMemoryException, OSError) as error:
        if "Out of Memory Error" not in str(error):
            raise
        what = f"tables do not fit into {memory or 'half of the memory'}: {str(error).partition(chr(10))[0]}"
        raise ConfigError(what, "runtime.curation_memory", "give them more, such as 1GB") from error


def step_names(method: str) -> list[str]:
    """The steps that decide about rows for `method`, in order."""
    names = sorted(file.name.removesuffix(".sql") for file in _SQL.iterdir() if file.name[0].isdigit())
    return [name for name in names if method in FAMILIES.get(name.split("_")[1], METHODS) and not name.startswith("70_")]


def _last(method: str) -> str:
    """The step that reads the payload of the rows that are left."""
    return "70_pairs" if method == "dpo" else "70_samples"


def _dataset_name(method: str) -> str:
    return "preference_pairs" if method == "dpo" else "samples"


@contextmanager
def _workbench(
    store: Store, paths: Mapping[str, list[str]], threads: int | None, memory: str | None, ordered: bool
) -> Iterator[duckdb.DuckDBPyConnection]:
    """A session in which the words of the SQL files are known. Sums of rewards depend on an order; for pairs none are taken."""
    with session(store, (path for group in paths.values() for path in group), threads, memory, ordered) as duck:
        duck.create_function("running_mean", running_mean, ["DOUBLE[]", "DOUBLE"], "DOUBLE[]")
        duck.create_function("largest_cap", largest_cap, ["BIGINT[]", "BIGINT[]", "BIGINT", "DOUBLE"], "BIGINT")
        open_words(duck)
        yield duck


def _run_steps(
    duck: duckdb.DuckDBPyConnection, method: str, settings: Mapping[str, Any], rows: int, idle: Collection[str]
) -> Iterator[Count]:
    """Step after step; one in `idle` counts its rows without copying them."""
    unit, behind = "trajectories", ""
    for name in step_names(method):
        if name in idle:
            yield Count(name, unit, rows, rows, {})
            continue
        _decide(duck, name, behind, settings, -(-rows // _SLICE) if name in _BY_GROUP else 1)
        if name == _PAIRING:
            unit = "pairs"
            [(rows,)] = duck.execute(f'select count(*) from "{name}"').fetchall()
        count = _count(duck, name, unit, rows)
        duck.execute(f"create or replace temp view previous as {_kept(name)}")
        if behind not in _LOOKED_BACK_AT:
            duck.execute(f'drop table "{behind}"')
        behind, rows = name, count.rows_out
        yield count


def _decide(duck: duckdb.DuckDBPyConnection, name: str, behind: str, settings: Mapping[str, Any], slices: int) -> None:
    """Run a step on the rows that the one `behind` kept, all at once or some groups after the other."""
    for part in range(max(slices, 1)):
        if slices > 1:
            duck.execute(f"create or replace temp view previous as {_kept(behind)} and hash(group_id) % {slices} = {part}")
        into = f'insert into "{name}"' if part else f'create temp table "{name}" as'
        statement = f"{into} {_read(name)}"
        duck.execute(statement, _used(duck, statement, settings))


@contextmanager
def _payload(
    store: Store, duck: duckdb.DuckDBPyConnection, name: str, settings: Mapping[str, Any]
) -> Iterator[pa.RecordBatchReader]:
    """The rows of the last step, in order. The tables of the steps make room for them."""
    [(rows, tokens)] = duck.execute("select count(*), coalesce(sum(length), 0) from previous").fetchall()
    duck.execute("create temp table kept as from previous")
    duck.execute("create or replace temp view previous as from kept")
    for (table,) in duck.execute("select table_name from duckdb_tables() where temporary and table_name <> 'kept'").fetchall():
        duck.execute(f"drop table {identifier(table)}")
    give_back()
    with staging(store.root, "rows") as directory:
        payload = duck.sql(_read(name), params=_used(duck, _read(name), settings)).to_arrow_reader(_BATCH)
        yield in_order(payload, rows * (2 if name == "70_pairs" else 1), int(tokens), directory)


def _kept(name: str) -> str:
    return f'select * exclude (reason) from "{name}" where reason is null'


def _count(duck: duckdb.DuckDBPyConnection, name: str, unit: str, rows: int) -> Count:
    reasons = dict(duck.execute(f'select reason, count(*) from "{name}" group by all order by all').fetchall())
    kept = reasons.pop(None, 0)
    if kept + sum(reasons.values()) != rows:
        raise DataError(f"{rows} rows went in, {kept} came out and {sum(reasons.values())} were set aside", f"curation step {name}")
    return Count(name, unit, rows, kept, reasons)


def _figures(duck: duckdb.DuckDBPyConnection, name: str) -> dict[str, Any]:
    """Figures of the batch; one that cannot be computed is absent."""
    cursor = duck.execute(_read(name))
    [row] = cursor.fetchall()
    return {column[0]: value for column, value in zip(cursor.description or [], row, strict=True) if value is not None}


def _result(output: DatasetRef, counts: Sequence[Count], details: dict[str, Any], last: str) -> StepResult:
    set_aside: dict[str, int] = {}
    trajectories = [count for count in counts if count.unit == "trajectories"]
    for count in trajectories:
        for reason, rows in count.set_aside.items():
            set_aside[reason] = set_aside.get(reason, 0) + rows
    if unpaired := trajectories[-1].rows_out - details.get("paired", trajectories[-1].rows_out):
        set_aside["in no pair"] = unpaired
    steps = [*counts, Count(last, counts[-1].unit, counts[-1].rows_out, output.rows, {})]
    details = {"steps": [count.as_dict() for count in steps], **details}
    return StepResult(output=output, rows_in=counts[0].rows_in, rows_out=output.rows, set_aside=set_aside, details=details)


def _read(name: str) -> str:
    return (_SQL / f"{name}.sql").read_text(encoding="utf-8")


def _used(duck: duckdb.DuckDBPyConnection, statement: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters that a statement names; DuckDB takes no others."""
    [parsed] = duck.extract_statements(statement)
    return {name: settings[name] for name in parsed.named_parameters}


def _first_files(store: Store, trajectories: Sequence[DatasetRef], measures: Sequence[DatasetRef]) -> list[int]:
    """For each file of measures the place of the first file of its dataset among all files of trajectories."""
    places, first = [], 0
    for ref, narrow in zip(trajectories, measures, strict=True):
        places += [first] * len(dataset_files(store, narrow))
        first += len(dataset_files(store, ref))
    return places


def _paths(store: Store, what: str, refs: Sequence[DatasetRef]) -> list[str]:
    if not refs:
        raise DataError(f"curation needs at least one dataset of {what}")
    return [str(file) for ref in refs for file in dataset_files(store, ref)]
