"""Find every row of the store that comes from a session, a user, a trajectory or a file, or that holds a text.

Trajectories name their session and user; all derived rows name their trajectories. The search uses column names, so it is the same
for all datasets: `session_id`, `user_id`; `trajectory_id`, `chosen_id`, `rejected_id`; `row_id` (a trajectory or a pair, and in
quarantine anything); `item_id` of a task item that only these trajectories and prompts ask.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import duckdb

from clawpipe.core.contracts.text import EDITED
from clawpipe.core.store.artifacts import Store
from clawpipe.core.store.duck import session
from clawpipe.core.store.refs import DatasetRef
from clawpipe.data.forgotten.sources import Source, read_keys, stored_sources
from clawpipe.data.forgotten.subject import Subject, pattern_of, session_of, spellings

_TABLES = ("sessions", "users", "trajectories", "pairs", "items", "prompts", "files")  # tables of ids, one column `id` each
# A table `sessions` holds ids, which stand for the sessions of all keys, and names with a key (`clawpipe.data.forgotten.subject`).
_OF_SESSIONS = "(session_id in (from sessions) or session_name in (from sessions))"
_OF_EDITED = f"split_part(trajectory_id, '{EDITED}', 1) in (from trajectories)"  # rows with a person's answer, and the edited ones
_EDITED_ONES = f"select split_part(id, '{EDITED}', 1) from trajectories where contains(id, '{EDITED}')"
_NAMING = {  # the condition under which a row is found, by the column that it looks at
    "session_id": _OF_SESSIONS,
    "user_id": "user_id in (from users)",
    "trajectory_id": "trajectory_id in (from trajectories)",
    "chosen_id": "chosen_id in (from trajectories)",
    "rejected_id": "rejected_id in (from trajectories)",
    "pair_id": "pair_id in (from pairs)",
    "row_id": f"row_id in (from trajectories) or row_id in (from pairs) or row_id in ({_EDITED_ONES})",
}
_NOBODY_ELSES = "(user_id is null or not exists (from users) or user_id in (from users))"
_OF_SUBJECT = f"(user_id in (from users) or ({_OF_SESSIONS} and {_NOBODY_ELSES}))"
_ITEM, _OWNER = {"identity", "item_id"}, {"session_id", "user_id"}  # columns of task items, and of rows with an owner
_TEXTS = ("messages", "prompt", "chosen", "rejected", "tools", "extra")  # columns with texts of conversations
_MEMORY = "512MB"  # beyond it DuckDB goes to disk
# A rejected row is text: it names its trajectory, holds the id anywhere, or comes from a file with rows of the subject only.
_PARSED = """(case when json_valid("row") then "row" else '{}' end)"""
_QUARANTINED = " or ".join(
    [
        """regexp_matches("row", $pattern) and ($key = '' or contains("row", $key)) or regexp_matches(row_id, $path)""",
        "regexp_extract(row_id, '^(.*):[0-9]+(-[0-9]+)?(@[0-9]+)?$', 1) in (from files)",
        *(f"{_PARSED}->>'$.{name}' in (from trajectories)" for name in ("trajectory_id", "chosen_id", "rejected_id")),
    ]
)


@dataclass(frozen=True)
class Hits:
    """The found rows of one dataset: row indices by file index, from 0."""

    ref: DatasetRef
    rows: dict[int, list[int]]

    @property
    def count(self) -> int:
        return sum(map(len, self.rows.values()))


@dataclass
class Findings:
    """The result of a search.

    Attributes:
        sessions: the names of the subject's sessions, and of sessions that continue them.
        keys: the keys with which rows of these sessions were captured; "" for rows that name none.
        shared: sessions with rows of other users, which stay.
        pairs, items: ids of the preference pairs and task items that were found.
        origins: lines by source file.
        damaged: datasets that cannot be read.
    """

    hits: list[Hits] = field(default_factory=list)
    trajectories: set[str] = field(default_factory=set)
    pairs: set[str] = field(default_factory=set)
    items: set[str] = field(default_factory=set)
    sessions: set[str] = field(default_factory=set)
    keys: set[str] = field(default_factory=set)
    shared: set[str] = field(default_factory=set)
    origins: dict[str, set[int]] = field(default_factory=dict)
    damaged: list[DatasetRef] = field(default_factory=list)


def find(store: Store, subject: Subject) -> Findings:
    """Search all datasets, without changes."""
    sources, damaged = stored_sources(store)
    found = Findings(damaged=damaged)
    if not sources:
        return found
    with session(store, [file for source in sources for file in source.paths], memory=_MEMORY) as duck:
        _open_tables(duck, subject, sources)
        _follow(duck, sources, subject)
        found.sessions, found.keys = _ids(duck, "sessions"), _keys_of(duck, sources)
        found.shared = _shared(duck, sources)
        if subject.kind not in ("trajectory", "text"):  # rejected rows of the same file do not count
            _own_files(duck, sources)
        ids = [subject.id, *sorted(map(session_of, found.sessions))]
        patterns = {"pattern": pattern_of(ids), "path": pattern_of(ids, joints=""), "key": _written(subject.key)}
        hits = [hit for source in sources for hit in _hits(duck, source, patterns)]
        found.hits = sorted(hits, key=lambda hit: (hit.ref.name, hit.ref.digest))
        found.trajectories, found.pairs = _ids(duck, "trajectories"), _ids(duck, "pairs")
        found.items = _ids(duck, "items") | _ids(duck, "prompts")
        found.origins = _origins(duck, sources)
    return found


def _ids(duck: duckdb.DuckDBPyConnection, table: str) -> set[str]:
    return {name for (name,) in duck.execute(f"from {table}").fetchall()}


def _open_tables(duck: duckdb.DuckDBPyConnection, subject: Subject, sources: Sequence[Source]) -> None:
    """Create the tables of ids, filled with the ids of the subject."""
    for name in _TABLES:
        duck.execute(f"create temp table {name} (id varchar)")
    for source in sources:
        read_keys(duck, source)
    if subject.kind in ("session", "user"):
        duck.execute(f"insert into {subject.kind}s values ($id)", {"id": subject.name})
    for source in sources if subject.names_rows else ():
        for table, column in (("trajectories", "trajectory_id"), ("pairs", "pair_id")):
            if column in source.columns and (condition := _names(subject, column, source.columns)):
                _add_named(duck, table, source, column, condition, subject)


def _written(key: str | None) -> str:
    """Return a key as a captured record writes it; empty for none."""
    return f'"key":{json.dumps(key)}' if key else ""


def _names(subject: Subject, column: str, columns: Iterable[str]) -> str:
    """Return the SQL condition of rows that the subject names directly; empty if the columns do not allow one."""
    if subject.kind == "trajectory":
        return f"{column} in (select unnest($words))"
    if subject.kind == "source":
        return "origin.file in (select unnest($words))" if {"origin", "session_id"} <= set(columns) else ""
    texts = [f"to_json({name})::varchar" for name in _TEXTS if name in columns]
    return " or ".join(f"len(list_filter($words, lambda word: contains({text}, word))) > 0" for text in texts)


def _words(subject: Subject) -> dict[str, list[str]]:
    """Return the search words: an id, the names of a file, or a text in plain, JSON and nested JSON spelling."""
    if subject.kind == "source":
        return {"words": list(dict.fromkeys([subject.id, str(Path(subject.id).absolute())]))}
    if subject.kind == "text":
        return {"words": list(dict.fromkeys(twice for once in spellings(subject.id) for twice in spellings(once)))}
    return {"words": [subject.id]}


def _follow(duck: duckdb.DuckDBPyConnection, sources: Sequence[Source], subject: Subject) -> None:
    """Fill the tables of ids: from users to sessions and their continuations, trajectories, task items, and rollouts of these."""
    recorded = [source for source in sources if {"trajectory_id", "item_id", "source"} | _OWNER <= source.columns]
    owned = [source for source in sources if source.columns >= _OWNER]
    prompts = [source for source in owned if source.columns >= _ITEM]
    for source in owned:  # rows with a session of this user, but without a user
        _add(duck, "sessions", source, "session_name", "user_id in (from users) and session_id is not null")
    _descend(duck, [source for source in recorded if "extra" in source.columns])
    for source in recorded:
        _add(duck, "trajectories", source, "trajectory_id", _OF_SUBJECT)
    for source in recorded:
        _add(duck, "trajectories", source, "trajectory_id", _OF_EDITED)
    for source in recorded:
        _add(duck, "items", source, "item_id", "trajectory_id in (from trajectories) and source <> 'rollout'")
    for source in prompts:
        _add(duck, "items", source, "item_id", _OF_SUBJECT)
        if subject.kind == "source" and (condition := _names(subject, "item_id", source.columns)):
            _add_named(duck, "prompts", source, "item_id", condition, subject)
    duck.execute("insert into items from prompts except from items")
    for source in recorded:  # prompts that another user asked as well do not count
        _keep_items(duck, source, "source <> 'rollout' and trajectory_id not in (from trajectories)")
    for source in prompts:
        others = f"coalesce(session_id, user_id) is not null and {_OF_SUBJECT} is not true and item_id not in (from prompts)"
        _keep_items(duck, source, others)
    for source in prompts:
        if subject.kind in ("trajectory", "text") and (condition := _names(subject, "item_id", source.columns)):
            _add_named(duck, "items", source, "item_id", condition, subject)
    for source in sources:
        if {"trajectory_id", "item_id"} <= source.columns:
            _add(duck, "trajectories", source, "trajectory_id", "item_id in (from items)")
    for source in sources:
        if {"pair_id", "chosen_id", "rejected_id"} <= source.columns:
            _add(duck, "pairs", source, "pair_id", f"{_NAMING['chosen_id']} or {_NAMING['rejected_id']}")
        if {"pair_id"} | _OWNER <= source.columns:  # imported as pairs
            _add(duck, "pairs", source, "pair_id", _OF_SUBJECT)


def _descend(duck: duckdb.DuckDBPyConnection, sources: Sequence[Source]) -> None:
    """Add sessions that continue a found one, whose messages they begin with; then those that continue them, and so on."""
    known = -1
    while known != (count := duck.execute("select count(*) from sessions").fetchall()[0][0]):
        known = count
        for source in sources:
            known_parent = "(parent in (from sessions) or parent_name in (from sessions))"
            _add(duck, "sessions", source, "session_name", f"session_id is not null and {known_parent} and {_NOBODY_ELSES}")


def _keys_of(duck: duckdb.DuckDBPyConnection, sources: Sequence[Source]) -> set[str]:
    """Return the keys of the rows of the found sessions, without what the sessions' other rows say."""
    found: set[str] = set()
    for source in sources:
        if {"trajectory_id", "extra"} | _OWNER <= source.columns:
            query = f"select distinct key from {source.keys} where {_OF_SESSIONS} and {_NOBODY_ELSES}"
            found |= {key for (key,) in duck.execute(query).fetchall()}
    return found


def _shared(duck: duckdb.DuckDBPyConnection, sources: Sequence[Source]) -> set[str]:
    """Return the names of sessions that rows of other users name as well."""
    found: set[str] = set()
    for source in sources:
        if {"session_id", "user_id"} <= source.columns:
            query = f"""
                select distinct unnest([session_id, session_name]) from {source.keys}
                where {_OF_SESSIONS} and not {_NOBODY_ELSES}"""
            found |= {name for (name,) in duck.execute(query).fetchall()}
    return found


def _add(duck: duckdb.DuckDBPyConnection, table: str, source: Source, column: str, condition: str) -> None:
    duck.execute(f"insert into {table} select distinct {column} from {source.keys} where {condition} except from {table}")


def _add_named(duck: duckdb.DuckDBPyConnection, table: str, source: Source, column: str, condition: str, subject: Subject) -> None:
    """Add ids of the rows that the subject names by itself; a text is looked for in the rows, anything else in the keys."""
    rows, files = (source.rows, {"files": source.paths}) if subject.kind == "text" else (source.keys, {})
    query = f"select distinct {column} from {rows} where {condition} except from {table}"
    duck.execute(f"insert into {table} {query}", _words(subject) | files)


def _keep_items(duck: duckdb.DuckDBPyConnection, source: Source, others: str) -> None:
    duck.execute(f"delete from items where id in (select item_id from {source.keys} where {others})")


def _hits(duck: duckdb.DuckDBPyConnection, source: Source, patterns: dict[str, str]) -> list[Hits]:
    condition = _condition(source.columns)
    if not condition:
        return []
    is_text = "$pattern" in condition  # rejected rows
    parameters = {"files": source.paths, **patterns} if is_text else {}
    rows = source.rows if is_text else source.keys
    query = f"select file_index, file_row_number from {rows} where {condition} order by all"
    hits: dict[str, Hits] = {}
    for number, row in duck.execute(query, parameters).fetchall():
        ref, place, _ = source.files[number]
        hits.setdefault(ref.digest, Hits(ref, {})).rows.setdefault(place, []).append(row)
    return list(hits.values())


def _condition(columns: Iterable[str]) -> str:
    columns = set(columns)
    # A session with other users is found by its rows, one by one.
    named = [
        _NAMING[name]
        for name in _NAMING
        if name in columns and not (name == "session_id" and {"trajectory_id", "pair_id", "identity"} & columns)
    ]
    if columns >= _ITEM:
        named += ["item_id in (from items) or item_id in (from prompts)", *([_OF_SUBJECT] if columns >= _OWNER else [])]
    if {"dataset", "row_id", "reasons", "row"} <= columns:
        named.append(_QUARANTINED)
    return " or ".join(named)


def _own_files(duck: duckdb.DuckDBPyConnection, sources: Sequence[Source]) -> None:
    """Return the source files with rows of the subject only."""
    for source, found in _imported(sources):
        _add(duck, "files", source, "origin.file", f"({found}) and origin is not null")
    for source, found in _imported(sources):
        others = f"select origin.file from {source.keys} where origin is not null and not ({found})"
        duck.execute(f"delete from files where id in ({others})")


def _imported(sources: Sequence[Source]) -> Iterator[tuple[Source, str]]:
    """Yield the datasets with origins, and the SQL condition of their found rows."""
    for source in sources:
        if {"session_id", "origin"} <= source.columns:  # in scores, origin is the kind of scorer
            names = ("trajectory_id", "pair_id") if not source.columns >= _ITEM else ()
            found = [_NAMING[name] for name in names if name in source.columns]
            yield source, found[0] if found else "item_id in (from items) or item_id in (from prompts)"


def _origins(duck: duckdb.DuckDBPyConnection, sources: Sequence[Source]) -> dict[str, set[int]]:
    found: dict[str, set[int]] = {}
    for source, condition in _imported(sources):
        query = f"""
            select distinct origin.file, origin.line from {source.keys}
            where ({condition}) and origin is not null"""
        for file, line in duck.execute(query).fetchall():
            found.setdefault(file, set()).add(line)
    return found
