"""What curation wants to know of each trajectory: measured once a dataset, kept beside it, and never part of a result.

A night over old datasets and a new one reads the tokens and messages of the new one alone. The rows are a dataset of the store, so
that what is forgotten goes from them as from any other; notes in `MEMORY` say which one belongs to which trajectories, settings and
code. Either may be lost at any time: they are made again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from importlib import resources
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
from pydantic import BaseModel, ConfigDict, ValidationError

import clawpipe.curation
from clawpipe import faults
from clawpipe.contracts.schema import schema_of
from clawpipe.store.artifacts import Store, write_atomic
from clawpipe.store.datasets import dataset_files, publish_dataset
from clawpipe.store.duck import mixed, session
from clawpipe.store.keys import step_key
from clawpipe.store.parts import rechunk
from clawpipe.store.refs import DatasetRef

NAME = "measures"
MEMORY = ".measures"  # directory of the store: one small file for each set of measures
_SQL = resources.files(clawpipe.curation) / "sql"
_ROWS = 65536  # a file: its rows are narrow
_UINT = pa.uint64()
_ACT = pa.struct([("said", _UINT), ("act", _UINT), ("prefix", _UINT)])
SCHEMA = pa.schema(
    [("file", pa.int32()), ("row", pa.int64())]  # of the trajectory in its dataset, both from 0
    + [
        schema_of("trajectories").field(name)
        for name in ("trajectory_id", "item_id", "group_id", "rollout_index", "policy_version", "split", "tokens", "temperature")
    ]
    + [schema_of("trajectories").field(name) for name in ("turns", "environment", "source", "session_id", "user_id")]
    + [("ending", pa.string()), ("length", pa.int64()), ("trained", pa.int64()), ("main_turns", pa.int32()), ("finite", pa.bool_())]
    + [("body", _UINT), ("questions", pa.list_(_UINT))]
    + [("in_script", pa.float64()), ("repetition", pa.float64()), ("tool_error_rate", pa.float64()), ("canary", pa.bool_())]
    + [("answered", pa.list_(pa.bool_())), ("prompt", _UINT), ("said", _UINT), ("acts", pa.list_(_ACT))]
)


class _Known(BaseModel):
    """Which measures belong to which trajectories."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    trajectories: str
    measures: DatasetRef


def measured(
    store: Store, trajectories: DatasetRef, wants: Mapping[str, Any], threads: int | None = None, memory: str | None = None
) -> DatasetRef:
    """The measures of a dataset, of layout SCHEMA and in its order: those of an earlier night where there are any.

    Args:
        wants: see clawpipe.curation.parameters.wants.

    Raises:
        DataError: missing or damaged.
    """
    inputs = {"trajectories": trajectories, "wants": dict(wants)}
    path = store.root / MEMORY / f"{step_key(NAME, inputs, __name__, ('duckdb', 'pyarrow'))}.json"
    known = _read(path)
    if known is None or not store.intact(known.measures):
        known = _Known(trajectories=trajectories.digest, measures=_measure(store, trajectories, wants, threads, memory))
        faults.point("measures.before_note")
        write_atomic(path, known.model_dump_json().encode())
    faults.point("measures.before_use")
    return known.measures


def known_measures(store: Store) -> Iterator[tuple[str, str]]:
    """Digests of trajectories and of measures of theirs, of all nights; either may be gone."""
    for path in sorted((store.root / MEMORY).glob("*.json")):
        if known := _read(path):
            yield known.trajectories, known.measures.digest


def drop_dead_notes(store: Store) -> None:
    """Forget which measures there were where they are gone."""
    for path in (store.root / MEMORY).glob("*.json"):
        known = _read(path)
        if known is None or not store.path(known.measures).exists():
            path.unlink()


def open_words(duck: duckdb.DuckDBPyConnection) -> None:
    """The words of the SQL files, and the layouts of what older files lack columns of."""
    for name in ("trajectories", "scores"):
        duck.register(f"{name}_layout", schema_of(name).empty_table())
    duck.execute((_SQL / "words.sql").read_text(encoding="utf-8"))


def _read(path: Path) -> _Known | None:
    """A note; None where there is none, or a damaged one."""
    with suppress(OSError, ValidationError):
        return _Known.model_validate_json(path.read_bytes())
    return None


def _measure(
    store: Store, trajectories: DatasetRef, wants: Mapping[str, Any], threads: int | None, memory: str | None
) -> DatasetRef:
    files = [str(file) for file in dataset_files(store, trajectories)]

    def batches() -> Iterator[pa.RecordBatch]:
        with session(store, files, threads, memory) as duck:
            open_words(duck)
            statement = (_SQL / "measures.sql").read_text(encoding="utf-8")
            yield from duck.sql(
                statement, params={"trajectories": files, "mixed_trajectories": mixed(files), **wants}
            ).to_arrow_reader()

    return publish_dataset(store, NAME, rechunk(batches(), SCHEMA, _ROWS), parents=[trajectories.digest])
