"""Store judge records that arrive in a later run than their turns, which are looked up in the store."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, count
from pathlib import Path
from typing import NamedTuple, TypeVar

import orjson

from clawpipe.core.basics.json_types import Row
from clawpipe.core.store.artifacts import Store
from clawpipe.core.store.duck import session
from clawpipe.data.importers.formats.openclaw import JudgeRecord, merged
from clawpipe.data.importers.formats.table import FAMILIES
from clawpipe.data.ingest.intake.rows import SOURCE, score_row

Turn = tuple[str, int]  # session and number
_OPINION = ("value", "reason", "evidence", "hints")
Name = TypeVar("Name", bound=Hashable)


class Place(NamedTuple):
    """The place of a stored turn: its trajectory, the format that it was read from, and the number of its reply."""

    trajectory_id: str
    format: str
    reply: int


class OrphanScores(NamedTuple):
    """New rows of `scores`, the number of judgements that were stored before, and the number of records without a turn."""

    rows: list[Row]
    repeated: int
    unmatched: int


def orphan_scores(
    store: Store, trajectories: Sequence[Path], scores: Sequence[Path], judged: Mapping[Turn, Sequence[JudgeRecord]]
) -> OrphanScores:
    """Return score rows of stored turns, except for judgements that are stored already.

    Args:
        trajectories, scores: files of the rows that earlier runs have stored.
        judged: redacted records, by their turn.
    """
    places = _places(store, trajectories, {name for name, _ in judged}) if judged and trajectories else {}
    return scores_at(store, scores, places, judged)


def scores_at(
    store: Store, scores: Sequence[Path], places: Mapping[Name, Sequence[Place]], judged: Mapping[Name, Sequence[JudgeRecord]]
) -> OrphanScores:
    """Return score rows of the stored turns at `places`, as `orphan_scores` does; both mappings have the turns' names as keys."""
    known = _Stored(store, scores, {place.trajectory_id for turn in judged for place in places.get(turn, ())})
    made = [row for turn, records in judged.items() for place in places.get(turn, ()) for row in known.rows(place, records)]
    new = [row for row in made if row]
    return OrphanScores(new, len(made) - len(new), sum(len(records) for turn, records in judged.items() if turn not in places))


def _places(store: Store, files: Sequence[Path], sessions: set[str]) -> dict[Turn, list[Place]]:
    """Return the places of all main turns of the sessions."""
    query = """
        select session_id, trajectory_id, origin.format, kinds, extra from read_parquet($files, union_by_name = true)
        where session_id in (select unnest($sessions::varchar[])) and list_contains($formats::varchar[], origin.format)
        order by trajectory_id"""
    parameters = {"files": [str(file) for file in files], "sessions": sorted(sessions), "formats": list(FAMILIES["openclaw"])}
    with session(store, files) as duck:
        rows = duck.execute(query, parameters).fetchall()
    places: dict[Turn, list[Place]] = {}
    for name, trajectory_id, format, kinds, extra in rows:
        for number, index in _own_turns(kinds or [], extra):
            places.setdefault((name, number), []).append(Place(trajectory_id, format, index))
    return places


def _own_turns(kinds: Sequence[str], extra: str | None) -> Iterator[tuple[int, int]]:
    """Return number and index of each turn that is not context: the last ones, if the first were stored before.

    In a side session, kinds do not separate turns from context: it has turns only if all replies are turns. Rows of earlier
    versions do not name the reply of a turn.
    """
    turns = orjson.loads(extra or "{}").get("turns") or []
    if "main" in kinds and all("reply" in turn for turn in turns):
        return ((turn["turn"], turn["reply"]) for turn in turns if turn["reply"] >= kinds.index("main"))
    main = [index for index, kind in enumerate(kinds) if kind == "main"]
    if not main:
        main = list(range(len(kinds))) if len(kinds) == len(turns) else []
    return zip((turn["turn"] for turn in turns[-len(main) :]), main, strict=False) if main else iter(())


class _Stored:
    """The stored judgements of some trajectories, by trajectory and turn; new ones are added."""

    def __init__(self, store: Store, files: Sequence[Path], trajectories: set[str]) -> None:
        self._rows: dict[tuple[str, int], list[Row]] = {}
        if files and trajectories:
            query = """
                select trajectory_id, turn, scorer, value, reason, evidence, hints from read_parquet($files, union_by_name = true)
                where turn is not null and trajectory_id in (select unnest($trajectories::varchar[])) order by all"""
            with session(store, files) as duck:
                parameters = {"files": [str(file) for file in files], "trajectories": sorted(trajectories)}
                for found in duck.execute(query, parameters).fetchall():
                    row: Row = dict(zip(("trajectory_id", "turn", "scorer", *_OPINION), found, strict=True))
                    self._rows.setdefault((row["trajectory_id"], row["turn"]), []).append(row)

    def rows(self, place: Place, records: Sequence[JudgeRecord]) -> Iterator[Row | None]:
        """Yield the row of each judgement; None if it is stored. A hint without a score takes the turn's score, not 0."""
        stored = self._rows.setdefault((place.trajectory_id, place.reply), [])
        only_hints = stored and not any(record.scored for record in records)
        for judgement in merged(records):
            value = stored[0]["value"] if only_hints else judgement.value
            scorer = _free(f"{SOURCE}/{place.format}/{judgement.origin}", stored)
            row = score_row(place.trajectory_id, scorer, replace(judgement, value=value, turn=place.reply))
            if any(_same(row, other) for other in stored):
                yield None
            else:
                stored.append(row)
                yield row


def _free(scorer: str, stored: Sequence[Row]) -> str:
    """Return a scorer name that is not yet used for this turn."""
    taken = {row["scorer"] for row in stored}
    names = chain([scorer], (f"{scorer}/{number}" for number in count(2)))
    return next(name for name in names if name not in taken)


def _same(row: Row, other: Row) -> bool:
    return all(row[name] == other[name] for name in _OPINION)
