"""Look up captured turns that earlier runs have stored, so that none is stored twice and later feedback is joined to its turn."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import orjson

from clawpipe.core.conversation.messages import Message
from clawpipe.core.store.artifacts import Store
from clawpipe.core.store.duck import session
from clawpipe.data.capture.records import Feedback
from clawpipe.data.capture.sessions import Key
from clawpipe.data.importers.formats.capture import FORMAT
from clawpipe.data.importers.formats.captured_rows import judgement_of
from clawpipe.data.importers.formats.openclaw import JudgeRecord
from clawpipe.data.importers.record import Origin, Preference
from clawpipe.data.ingest.captured.orphan_judgements import Place

_STORED = """
    select trajectory_id, session_id, extra from read_parquet($files, union_by_name = true)
    where origin.format = $format and (session_id in (select unnest($sessions::varchar[])) or $all)
    order by trajectory_id"""


_ROWS = """
    select trajectory_id, messages, tools, session_id, user_id from read_parquet($files, union_by_name = true)
    where trajectory_id in (select unnest($rows::varchar[]))"""


class StoredTurn(NamedTuple):
    """A stored turn: its id and place, its session and number there, the key that it was asked with, and whether a fault keeps it
    from teaching."""

    id: str
    place: Place
    session: str
    number: int
    key: str
    faulty: bool = False


def stored_turns(store: Store, files: Sequence[Path], sessions: Collection[str], everything: bool) -> dict[str, StoredTurn]:
    """Return the stored turns of these sessions by their ids, and by those of their responses.

    Args:
        files: rows of `trajectories`.
        everything: take those of all sessions, because feedback may name none.
    """
    if not files or not (sessions or everything):
        return {}
    with session(store, files) as duck:
        parameters = {"files": [str(file) for file in files], "sessions": sorted(sessions), "format": FORMAT, "all": everything}
        rows = duck.execute(_STORED, parameters).fetchall()
    found: dict[str, StoredTurn] = {}
    for trajectory_id, name, extra in rows:
        parsed = orjson.loads(extra or "{}")
        for turn in parsed.get("turns", ()):
            place, key = Place(trajectory_id, FORMAT, turn["reply"]), parsed.get("key", "")
            stored = StoredTurn(turn["id"], place, name, turn["turn"], key, "fault" in turn)
            found |= {one: stored for one in (turn["id"], turn["response_id"]) if one}
    return found


def turns_before(stored: Mapping[str, StoredTurn], read: Collection[str]) -> Counter[Key]:
    """Return how many stored turns of each session are not among the ones that are read now."""
    return Counter((turn.key, turn.session) for name, turn in stored.items() if name == turn.id and name not in read)


def orphan_feedback_scores(
    feedback: Sequence[Feedback], stored: Mapping[str, StoredTurn]
) -> tuple[dict[str, list[JudgeRecord]], dict[str, list[Place]]]:
    """Return the scores of feedback by its id, and the place of each turn; feedback on an unknown turn has no place."""
    judged: dict[str, list[JudgeRecord]] = {}
    places: dict[str, list[Place]] = {}
    for one, turn in _with_turns(feedback, stored):
        if turn:
            places[one.id] = [turn.place]
        if one.value is not None or one.id not in places:
            judged[one.id] = [JudgeRecord(one.session or "", one.turn or 0, judgement_of(one, turn.place.reply if turn else 0))]
    return judged, places


def orphan_corrections(
    store: Store, files: Sequence[Path], feedback: Sequence[tuple[Feedback, Origin]], stored: Mapping[str, StoredTurn]
) -> Iterator[Preference]:
    """Yield a pair for each stored turn that somebody corrected since: the correction is chosen, the answer rejected. A turn with a
    fault gives none.

    Args:
        files: rows of `trajectories`.
        feedback: each record with the line that holds it.
        stored: see `stored_turns`.
    """
    origins = {one.id: origin for one, origin in feedback}
    corrected = [
        (one, turn)
        for one, turn in _with_turns([one for one, _ in feedback], stored)
        if turn and not turn.faulty and one.correction
    ]
    if not corrected:
        return
    with session(store, files) as duck:
        parameters = {"files": [str(file) for file in files], "rows": sorted({turn.place.trajectory_id for _, turn in corrected})}
        rows = {name: rest for name, *rest in duck.execute(_ROWS, parameters).fetchall()}
    for one, turn in corrected:
        recorded, tools, name, user = rows[turn.place.trajectory_id]
        messages = [Message.from_dict(message) for message in recorded]
        place = [number for number, message in enumerate(messages) if message.role == "assistant"][turn.place.reply]
        extra = {"key": turn.key, "feedback": one.id, "turn": turn.id}
        sides = (Message("assistant", one.correction or ""),), (messages[place],)
        yield Preference(tuple(messages[:place]), *sides, tools=tools, extra=extra, origin=origins[one.id], session=name, user=user)


def _with_turns(feedback: Sequence[Feedback], stored: Mapping[str, StoredTurn]) -> Iterator[tuple[Feedback, StoredTurn | None]]:
    """Yield each feedback record with its stored turn, which has the same key; None if there is none."""
    by_number = {(turn.key, turn.session, turn.number): turn for turn in stored.values()}
    for one in feedback:
        turn = stored.get(one.response_id or "") or by_number.get((one.key, one.session or "", one.turn or 0))
        yield one, turn if turn and turn.key == one.key else None
