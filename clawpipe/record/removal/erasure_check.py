"""Check an erasure: remove forgotten text from logs, and find files that still hold it.

A text is recognised by its long lines, plain or as JSON or HTML writes them; shorter lines may be anybody's. In rows of Parquet
files, which also hold messages of other users, only lines count that no other user is known to have written.
"""

from __future__ import annotations

import html
import json
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.core.store.artifacts import Store
from clawpipe.core.store.datasets import dataset_files, stored_datasets
from clawpipe.core.store.duck import session
from clawpipe.core.store.files import MANIFEST, write_atomic
from clawpipe.core.store.home import Home
from clawpipe.core.store.refs import DatasetRef
from clawpipe.data.forgotten.find import Findings, Hits
from clawpipe.data.forgotten.subject import Subject, pattern_of, session_of, spellings
from clawpipe.errors import DataError
from clawpipe.record.removal.windows import WINDOW, Window, windows

LONG = 24  # characters; a line of this length identifies its author
_NOTHING = r"(?!)"  # the id of a session of one key may be another key's session's, too
_ROWS = 1024  # rows of a batch
_LINES_OF_OTHERS = """
    select distinct line from (
        select trim(unnest(string_split(message.content, chr(10)))) as line
        from (select unnest(messages) as message, {user} as user_id from read_parquet($files, union_by_name = true))
        where message.role = 'system' or (user_id is not null and user_id not in (select unnest($users)))
    ) where line in (select unnest($lines))"""


@dataclass(frozen=True)
class ForgottenText:
    """The ids and lines to search for in rows of Parquet files."""

    ids: tuple[str, ...]
    lines: frozenset[str]

    def found_in(self, file: Path) -> bool:
        """Whether a row holds any of them; True if the file cannot be read."""
        pattern = re.compile(pattern_of(self.ids), re.MULTILINE)
        literals = [spelling for one in self.ids for spelling in spellings(one)]
        try:
            return any(
                self._holds_line(text) or (any(one in text for one in literals) and pattern.search(text))
                for text in _file_texts(file)
            )
        except (pa.ArrowException, OSError):
            return True

    def _holds_line(self, text: str) -> bool:
        return len(text) >= LONG and any(line in self.lines for part in _strings(text) for line in _long(part))


def forgotten_text_of(store: Store, subject: Subject, found: Findings) -> ForgottenText:
    """Collect the text before the rows are removed. Ids of sessions with other users are left out, because their rows stay, and so
    is the id of a session of one key."""
    ids = {subject.id, *map(session_of, found.sessions - found.shared)} if subject.key is None else set[str]()
    lines, users = set[str](), {subject.user or ""}
    for hit in found.hits:
        for row in rows_of(store, hit, ("messages", "user_id")):
            users.add(row.get("user_id") or "")
            lines |= {line for message in row["messages"] or () if message["role"] == "user" for line in _long(message["content"])}
    return ForgottenText(tuple(sorted(ids)), frozenset(lines - _lines_of_others(store, lines, users)))


def _long(text: str | None) -> Iterator[str]:
    return (line.strip() for line in (text or "").split("\n") if len(line.strip()) >= LONG)


def rows_of(store: Store, hit: Hits, columns: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Yield those of these columns that the found rows have; nothing of files without messages."""
    for number, file in enumerate(dataset_files(store, hit.ref)):
        held = [name for name in columns if name in pq.read_schema(file).names]
        if "messages" in held and hit.rows.get(number):
            yield from pq.read_table(file, columns=held).take(hit.rows[number]).to_pylist()


def _lines_of_others(store: Store, lines: set[str], users: set[str]) -> set[str]:
    lines_of_others: set[str] = set()
    for ref in stored_datasets(store) if lines else ():
        try:
            files = dataset_files(store, ref)
        except DataError:
            continue
        columns = {name for file in files for name in pq.read_schema(file).names}
        if "messages" in columns:
            query = _LINES_OF_OTHERS.format(user="user_id" if "user_id" in columns else "null::varchar")
            parameters = {"files": [str(file) for file in files], "users": sorted(users), "lines": sorted(lines)}
            with session(store, files) as duck:
                lines_of_others |= {line for (line,) in duck.execute(query, parameters).fetchall()}
    return lines_of_others


def _file_texts(file: Path) -> Iterator[str]:
    """Yield every string of a Parquet file's rows, distinct within a batch."""
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
    """Yield the string arrays within a nested array."""
    if isinstance(array, pa.StructArray):
        yield from (leaf for part in array.flatten() for leaf in _leaves(part))
    elif isinstance(array, pa.ListArray):
        yield from _leaves(array.flatten())
    elif _holds_text(array.type):
        yield array


def _strings(text: str) -> Iterator[str]:
    """Yield a text or, if it is JSON, all strings in it."""
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


@dataclass(frozen=True)
class Traces:
    """The ids and lines to search for: ids as whole words, lines in all spellings; `forgotten` is for Parquet files.

    `longest` is the number of bytes of the longest of them.
    """

    ids: re.Pattern[bytes]
    lines: tuple[bytes, ...]
    longest: int
    forgotten: ForgottenText

    def found_in(self, window: Window) -> bool:
        return window.matches(self.ids) or any(line in window.data for line in self.lines)

    def found_in_file(self, file: Path, size: int = WINDOW) -> bool:
        return any(map(self.found_in, windows(file, self.longest, size)))


def traces_of(store: Store, subject: Subject, found: Findings) -> Traces:
    """Collect the traces before the rows are removed. Ids of sessions with other users, and those of one key, are left out."""
    texts = {text for hit in found.hits for text in _texts(store, hit.ref, hit.rows)}
    lines = {form for text in texts for line in text.splitlines() if len(line) >= LONG for form in _forms(line)}
    ids = [subject.id, *sorted(map(session_of, found.sessions - found.shared))] if subject.key is None else []
    pattern = re.compile((pattern_of(ids) or _NOTHING).encode(errors="surrogatepass"), re.MULTILINE)
    written = [spelling.encode(errors="surrogatepass") for one in ids for spelling in spellings(one)]
    longest = max(map(len, [*lines, *written]), default=0)
    return Traces(pattern, tuple(sorted(lines)), longest, forgotten_text_of(store, subject, found))


def clean_logs(home: Home, traces: Traces) -> list[str]:
    """Remove lines from logs. Returns the changed logs."""
    changed = []
    for log in sorted([*home.root.glob("logs/**/*"), *home.runs.glob("*/logs/**/*")]):
        if log.is_file() and traces.found_in_file(log):
            with log.open("rb") as lines:
                write_atomic(log, (line for line in lines if not traces.found_in(Window(line))))
            changed.append(str(log))
    return changed


def remains_of(home: Home, traces: Traces) -> list[str]:
    """Return the files below the home that still hold a trace, including Parquet files."""
    return [str(file) for file in sorted(_files(home)) if file.is_file() and _holds(file, traces)]


def _files(home: Home) -> Iterator[Path]:
    """Yield the files below the home, also those of directories that lie on another disk and are links here."""
    seen = set[str]()
    for directory, folders, names in os.walk(home.root, followlinks=True):
        if (place := os.path.realpath(directory)) in seen:
            folders.clear()  # a link led here before
            continue
        seen.add(place)
        yield from (Path(directory, name) for name in names)


def _holds(file: Path, traces: Traces) -> bool:
    if file.suffix == ".safetensors" or file.name == MANIFEST:
        return False
    if file.suffix == ".parquet":
        return traces.forgotten.found_in(file)
    try:
        return traces.found_in_file(file)
    except PermissionError:  # another user's, and nobody knows
        return True
    except FileNotFoundError:  # a server's, which has removed it meanwhile
        return False


def _texts(store: Store, ref: DatasetRef, rows: dict[int, list[int]]) -> Iterator[str]:
    """Yield the strings in the messages of these rows."""
    for number, file in enumerate(dataset_files(store, ref)):
        columns = [name for name in ("messages", "prompt", "chosen", "rejected") if name in pq.read_schema(file).names]
        if rows.get(number) and columns:
            for row in pq.read_table(file, columns=columns).take(rows[number]).to_pylist():
                yield from (text for value in row.values() for text in _message_texts(value or ()))


def _message_texts(messages: Iterable[JsonObject]) -> Iterator[str]:
    for message in messages:
        yield message["content"] or ""
        yield from (call["arguments"] or "" for call in message["tool_calls"] or ())


def _forms(line: str) -> Iterator[bytes]:
    written = (line, json.dumps(line)[1:-1], json.dumps(line, ensure_ascii=False)[1:-1], html.escape(line))
    yield from (form.encode(errors="surrogatepass") for form in written)
