"""Words of the forgotten in rows that stay: a row of somebody else may hold them under a name that leads nowhere.

What counts are ids, where they stand as words, and long lines of what was asked, unless a system prompt or a row that names another
user says the same: many say what a template says. Texts that are JSON are looked at string by string.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from clawpipe.errors import DataError
from clawpipe.lineage.find import Findings, Hits
from clawpipe.lineage.subject import Subject, pattern_of, spellings
from clawpipe.store.artifacts import Store
from clawpipe.store.datasets import dataset_files, stored_datasets
from clawpipe.store.duck import session

LONG = 24  # characters from which on a line is told from what others might have said
_ROWS = 1024  # of a batch
_TOLD_BY_OTHERS = """
    select distinct line from (
        select trim(unnest(string_split(message.content, chr(10)))) as line
        from (select unnest(messages) as message, {user} as user_id from read_parquet($files, union_by_name = true))
        where message.role = 'system' or (user_id is not null and user_id not in (select unnest($whose)))
    ) where line in (select unnest($lines))"""


@dataclass(frozen=True)
class Spoken:
    """What to look for in the rows of Parquet files."""

    ids: tuple[str, ...]
    lines: frozenset[str]

    def found_in(self, file: Path) -> bool:
        """Whether a row holds any of it; a file that cannot be read may."""
        pattern = re.compile(pattern_of(self.ids), re.MULTILINE)
        literals = [spelling for one in self.ids for spelling in spellings(one)]
        try:
            return any(self._says(text) or (any(one in text for one in literals) and pattern.search(text)) for text in _texts(file))
        except (pa.ArrowException, OSError):
            return True

    def _says(self, text: str) -> bool:
        return len(text) >= LONG and any(line in self.lines for part in _strings(text) for line in _long(part))


def spoken_of(store: Store, subject: Subject, found: Findings) -> Spoken:
    """Call before the rows are removed. A session that others take part in is still named by theirs."""
    ids, lines, whose = {subject.id, *(found.sessions - found.shared)}, set[str](), {subject.user or ""}
    for hit in found.hits:
        for row in _rows(store, hit):
            whose.add(row.get("user_id") or "")
            lines |= {line for message in row["messages"] or () if message["role"] == "user" for line in _long(message["content"])}
    return Spoken(tuple(sorted(ids)), frozenset(lines - _told_by_others(store, lines, whose)))


def _long(text: str | None) -> Iterator[str]:
    return (line.strip() for line in (text or "").split("\n") if len(line.strip()) >= LONG)


def _rows(store: Store, hit: Hits) -> Iterator[dict[str, Any]]:
    """What was said in the rows that were found, and whose they are."""
    for number, file in enumerate(dataset_files(store, hit.ref)):
        columns = [name for name in ("messages", "user_id") if name in pq.read_schema(file).names]
        if "messages" in columns and hit.rows.get(number):
            yield from pq.read_table(file, columns=columns).take(hit.rows[number]).to_pylist()


def _told_by_others(store: Store, lines: set[str], whose: set[str]) -> set[str]:
    told: set[str] = set()
    for ref in stored_datasets(store) if lines else ():
        try:
            files = dataset_files(store, ref)
        except DataError:
            continue
        columns = {name for file in files for name in pq.read_schema(file).names}
        if "messages" in columns:
            query = _TOLD_BY_OTHERS.format(user="user_id" if "user_id" in columns else "null::varchar")
            parameters = {"files": [str(file) for file in files], "whose": sorted(whose), "lines": sorted(lines)}
            with session(store, files) as duck:
                told |= {line for (line,) in duck.execute(query, parameters).fetchall()}
    return told


def _texts(file: Path) -> Iterator[str]:
    """Every string of a Parquet file's rows, once a batch."""
    with pq.ParquetFile(file) as parquet:
        schema = parquet.schema_arrow
        named = [field.name for field in schema if _holds_text(field.type)]
        for batch in parquet.iter_batches(_ROWS, columns=named):
            for column in batch.columns:
                yield from (text for leaf in _leaves(column) for text in leaf.unique().to_pylist() if text)


def _holds_text(kind: pa.DataType) -> bool:
    if pa.types.is_struct(kind):
        return any(_holds_text(field.type) for field in kind)
    return _holds_text(kind.value_type) if pa.types.is_list(kind) else pa.types.is_string(kind) or pa.types.is_large_string(kind)


def _leaves(array: pa.Array) -> Iterator[pa.Array]:
    """The arrays of strings in one of any nesting."""
    if isinstance(array, pa.StructArray):
        yield from (leaf for part in array.flatten() for leaf in _leaves(part))
    elif isinstance(array, pa.ListArray):
        yield from _leaves(array.flatten())
    elif _holds_text(array.type):
        yield array


def _strings(text: str) -> Iterator[str]:
    """A text, or what JSON in it says."""
    try:
        ahead: list[Any] = [orjson.loads(text)] if text.startswith(("{", "[")) else [text]
    except orjson.JSONDecodeError:
        ahead = [text]
    while ahead:
        value = ahead.pop()
        if isinstance(value, str):
            yield value
        elif isinstance(value, dict | list):
            ahead += [*value, *value.values()] if isinstance(value, dict) else value
