"""Queries for stored rows, as a night's settings write them: `source = captured and environment != shop and since last night`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from clawpipe.core.config.registry import user_digest
from clawpipe.core.store.artifacts import Store
from clawpipe.core.store.datasets import dataset_files
from clawpipe.core.store.refs import DatasetRef
from clawpipe.core.store.rewrite import without_rows
from clawpipe.errors import ConfigError

SINCE = "since last night"
UNLEARNED = "unlearned"
_COLUMNS = {  # what a query calls a column of trajectories
    "source": "source",
    "environment": "environment",
    "session": "session_id",
    "user": "user_id",
    "model": "model",
    "policy": "policy_version",
    "tokens": "tokens",
    "status": "status",
    "format": "origin.format",
}
_ROWS = {"trajectories": "trajectory_id", "scores": "trajectory_id", "preference_pairs": "pair_id"}  # what names a row
_DIGEST = "sha256:"  # before the digest of a user, which stands for the name
_QUOTED = r"""(?:"[^"]*"|'[^']*')"""
_CONDITION = re.compile(rf"""\s*(\w+)\s*(!?=)\s*({_QUOTED}|[^\s"']+)\s*""")
_AND = re.compile(rf"""\s+and\s+(?=(?:[^"']|{_QUOTED})*$)""", re.IGNORECASE)  # one in quotes is of the value


@dataclass(frozen=True)
class Condition:
    """A column equals a value, or differs from it; what is absent differs from every value."""

    field: str
    equal: bool
    value: str

    def holds(self, rows: pa.Table) -> pa.Array:
        """Return a boolean per row.

        Raises:
            ConfigError: the rows have no such column.
        """
        column, *inner = _COLUMNS[self.field].split(".")
        if column not in rows.column_names:
            raise ConfigError(f"these rows have no {self.field}", self.field, f"their columns are {', '.join(rows.column_names)}")
        values = pc.struct_field(rows[column], inner) if inner else rows[column]  # pyright: ignore[reportAttributeAccessIssue]  # made at run time
        if self.field == "user" and self.value.startswith(_DIGEST):
            values = pa.array([user and _DIGEST + user_digest(user) for user in values.to_pylist()], pa.string())
        same = pc.fill_null(pc.equal(values, self.value), False)  # pyright: ignore[reportAttributeAccessIssue]  # made at run time
        return same if self.equal else pc.invert(same)  # pyright: ignore[reportAttributeAccessIssue]  # made at run time


@dataclass(frozen=True)
class Query:
    """All conditions hold; `unused`: and no night with a verdict has used the row for the model."""

    conditions: tuple[Condition, ...]
    unused: bool


def is_query(word: str) -> bool:
    """Whether a name of datasets is a query."""
    return "=" in word or word.lower().startswith("since ")


def takes_new(word: str) -> bool:
    """Whether a name of datasets stands for what no night has used yet."""
    return word in ("new", UNLEARNED) or (is_query(word) and parse_query(word).unused)


def parse_query(text: str) -> Query:
    """Parse conditions joined by `and`.

    Raises:
        ConfigError: a part is no condition, or names no field that a query can ask for.
    """
    parts = _AND.split(text.strip())
    asked = [part for part in parts if " ".join(part.lower().split()) != SINCE]
    return Query(tuple(_condition(part) for part in asked), unused=len(asked) < len(parts))


def _condition(text: str) -> Condition:
    found = _CONDITION.fullmatch(text)
    if not found or found[1] not in _COLUMNS:
        known = f"write FIELD = VALUE or FIELD != VALUE, joined by `and`, and `{SINCE}`; fields: {', '.join(_COLUMNS)}"
        raise ConfigError(f"{text.strip()!r} is no condition", "trajectories", known)
    value = found[3][1:-1] if found[3][0] in "\"'" else found[3]
    return Condition(found[1], found[2] == "=", value)


def matching(store: Store, refs: Iterable[DatasetRef], conditions: Sequence[Condition]) -> pa.Array:
    """Return the names of the rows for which all conditions hold.

    Raises:
        ConfigError: the rows have no such column.
        DataError: a dataset is missing or damaged.
    """
    return _joined(
        _matching(pq.read_table(file, columns=_read(file)), conditions) for ref in refs for file in dataset_files(store, ref)
    )


def users_of(store: Store, refs: Iterable[DatasetRef]) -> set[str]:
    """Return the users who are named in datasets."""
    files = (file for ref in refs for file in dataset_files(store, ref))
    columns = (pq.read_table(file, columns=["user_id"])["user_id"] for file in files if "user_id" in pq.read_schema(file).names)
    return {user for column in columns for user in column.unique().to_pylist() if user}


def row_names(store: Store, refs: Iterable[DatasetRef]) -> pa.Array:
    """Return what names the rows of datasets; for scores, the trajectories that they are of."""
    return _joined(pq.read_table(file, columns=[_ROWS[ref.name]]).column(0) for ref in refs for file in dataset_files(store, ref))


def selected(store: Store, ref: DatasetRef, keep: pa.Array, *, inverted: bool = False) -> DatasetRef | None:
    """Return the dataset of the rows with these names, or of all others; the same one where all are kept, None where none is."""
    rows: dict[int, list[int]] = {}
    for number, file in enumerate(dataset_files(store, ref)):
        found = pc.is_in(pq.read_table(file, columns=[_ROWS[ref.name]]).column(0), value_set=keep)  # pyright: ignore[reportAttributeAccessIssue]  # made at run time
        gone = np.flatnonzero(found.to_numpy() if inverted else ~found.to_numpy())
        if len(gone):
            rows[number] = gone.tolist()
    left = ref.rows - sum(map(len, rows.values()))
    return None if not left else ref if not rows else without_rows(store, ref, rows)


def _read(file: object) -> list[str]:
    """Return the columns of a file that name or describe its rows."""
    columns = {*_ROWS.values(), *(column.partition(".")[0] for column in _COLUMNS.values())}
    return [name for name in pq.read_schema(file).names if name in columns]


def _matching(rows: pa.Table, conditions: Sequence[Condition]) -> pa.ChunkedArray:
    name = next(name for name in _ROWS.values() if name in rows.column_names)
    masks = [condition.holds(rows) for condition in conditions]
    return rows[name].filter(reduce(pc.and_, masks)) if masks else rows[name]  # pyright: ignore[reportAttributeAccessIssue]  # made at run time


def _joined(columns: Iterable[pa.ChunkedArray]) -> pa.Array:
    chunks = [chunk for column in columns for chunk in column.chunks]
    return pa.concat_arrays(chunks) if chunks else pa.array([], pa.string())
