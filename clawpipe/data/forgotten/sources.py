"""The stored datasets as tables of SQL, for the search for what is to be forgotten."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import duckdb
import pyarrow.parquet as pq

from clawpipe.core.store.artifacts import Store
from clawpipe.core.store.datasets import dataset_files, stored_datasets
from clawpipe.core.store.refs import DatasetRef
from clawpipe.data.forgotten.subject import BESIDE
from clawpipe.errors import DataError

# Columns that name a row's subject, and others that many queries ask about.
_NAMES = ("session_id", "user_id", "trajectory_id", "chosen_id", "rejected_id", "pair_id", "row_id")
_READ_ONCE = (*_NAMES, "item_id", "identity", "source", "origin")
PARENT = "parent_session_id"  # in `extra`: Hermes' name of the session that this one continues
KEY = "key"  # in `extra`: the gateway's key with which a row was captured
_PARENT, _KEY = (
    f"(case when contains(extra, '{name}') and json_valid(extra) then extra->>'$.{name}' end)" for name in (PARENT, KEY)
)


@dataclass(frozen=True)
class Source:
    """Datasets whose files have the same columns of the same types, which one query reads: a query for each would take minutes."""

    number: int
    columns: frozenset[str]
    is_even: bool  # all files have all columns
    files: list[tuple[DatasetRef, int, Path]] = field(default_factory=list)  # with the file's place in its dataset

    @property
    def paths(self) -> list[str]:
        return [str(file) for _, _, file in self.files]

    @property
    def rows(self) -> str:
        """The rows as a table of SQL; `$files` are `paths`. Uniting by name keeps the footers of all files in memory."""
        return "read_parquet($files)" if self.is_even else "read_parquet($files, union_by_name = true)"

    @property
    def keys(self) -> str:
        """The table of the columns that many queries ask about, which opening each file for each query would make slow."""
        return f"keys_{self.number}"


def stored_sources(store: Store) -> tuple[list[Source], list[DatasetRef]]:
    """Return the datasets with files to search, and the damaged ones."""
    sources: dict[frozenset[str], Source] = {}
    damaged = []
    for ref in stored_datasets(store):
        try:
            files = tuple(dataset_files(store, ref))
        except DataError:
            damaged.append(ref)
            continue
        if files:
            layouts = [pq.read_schema(file).remove_metadata() for file in files]
            columns = frozenset(name for layout in layouts for name in layout.names)
            is_even = all(layouts[0].equals(one) for one in layouts)
            alike = sources.setdefault(frozenset(map(str, layouts)), Source(len(sources), columns, is_even))
            alike.files.extend((ref, place, file) for place, file in enumerate(files))
    return list(sources.values()), damaged


def read_keys(duck: duckdb.DuckDBPyConnection, source: Source) -> None:
    """Create the table `source.keys`."""
    columns = [name for name in _READ_ONCE if name in source.columns]
    key = _KEY if "extra" in source.columns else "null"
    named = {"session_name": "session_id"} if "session_id" in source.columns else {}
    named |= {"parent": _PARENT, "parent_name": _PARENT} if "extra" in source.columns else {}
    columns += [f"{_with_key(key, given) if name.endswith('_name') else given} as {name}" for name, given in named.items()]
    columns += [f"coalesce({key}, '') as key"]
    query = f"select {', '.join([*columns, 'file_index', 'file_row_number'])} from {source.rows}"
    duck.execute(f"create temp table {source.keys} as {query}", {"files": source.paths})


def _with_key(key: str, session: str) -> str:
    """Return the SQL expression of a session's name."""
    return f"coalesce({key} || chr({ord(BESIDE)}) || {session}, {session})"
