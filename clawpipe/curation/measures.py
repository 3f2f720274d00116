"""What curation wants to know of each trajectory: measured once a dataset, kept beside it, and never part of a result.

A night over old datasets and a new one reads the tokens and messages of the new one alone. The rows are a dataset of the store, so
that what is forgotten goes from them as from any other; notes say which one belongs to which trajectories, settings and code.
Either may be lost at any time: they are made again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from importlib import resources
from typing import Any

import duckdb
import pyarrow as pa

import clawpipe.curation
from clawpipe import faults
from clawpipe.contracts.schema import schema_of
from clawpipe.store.artifacts import Store
from clawpipe.store.datasets import dataset_files, publish_dataset
from clawpipe.store.duck import mixed, session
from clawpipe.store.keys import part_key, step_key
from clawpipe.store.notes import Note, Notes
from clawpipe.store.parts import rechunk
from clawpipe.store.refs import DatasetRef
from clawpipe.store.source import code_digest

NAME = "measures"
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
    + [("numbers", pa.list_(pa.int32()))]
    + [("ending", pa.string()), ("length", pa.int64()), ("trained", pa.int64()), ("main_turns", pa.int32()), ("finite", pa.bool_())]
    + [("logprobs_fault", pa.string())]
    + [("body", _UINT), ("questions", pa.list_(_UINT))]
    + [("in_script", pa.float64()), ("repetition", pa.float64()), ("tool_error_rate", pa.float64()), ("canary", pa.bool_())]
    + [("answered", pa.list_(pa.bool_())), ("prompt", _UINT), ("said", _UINT), ("acts", pa.list_(_ACT))]
)


def measured(
    store: Store,
    trajectories: Sequence[DatasetRef],
    wants: Mapping[str, Any],
    threads: int | None = None,
    memory: str | None = None,
) -> list[DatasetRef]:
    """The measures of each dataset, of layout SCHEMA and in its order: those of an earlier night where there are any.

    Args:
        wants: see clawpipe.curation.runner.wants.

    Raises:
        DataError: missing or damaged.
    """
    notes, key = Notes(store, NAME), step_key(NAME, {"wants": dict(wants)}, code_digest(__name__))
    found = []
    for ref in trajectories:
        note = notes.recall(part_key(key, ref))
        if note is None:
            note = Note(dataset=_measure(store, ref, wants, threads, memory))
            faults.point("measures.before_note")
            notes.keep(part_key(key, ref), note)
        faults.point("measures.before_use")
        found.append(note.dataset)
    return found


def open_words(duck: duckdb.DuckDBPyConnection) -> None:
    """The words of the SQL files, and the layouts of what older files lack columns of."""
    for name in ("trajectories", "scores"):
        duck.register(f"{name}_layout", schema_of(name).empty_table())
    duck.execute((_SQL / "words.sql").read_text(encoding="utf-8"))


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
            ).to_arrow_reader(_ROWS)

    return publish_dataset(store, NAME, rechunk(batches(), SCHEMA, _ROWS), parents=[trajectories.digest])
