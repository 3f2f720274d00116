"""Report the status of captured sessions and turns: in progress, waiting for ingest, stored, or rejected with a reason."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.core.store.duck import session as duck_session
from clawpipe.core.store.home import Home
from clawpipe.core.store.open import open_store
from clawpipe.data.capture.order import in_written_order
from clawpipe.data.capture.records import Record
from clawpipe.data.capture.segments import read_segment, segments, segments_dir
from clawpipe.data.capture.sessions import Session, SessionTurn, sessions_of
from clawpipe.data.capture.settings import session_settings
from clawpipe.data.capture.untaught import faults_of
from clawpipe.data.importers.sources.urls import is_url, name_of
from clawpipe.data.ingest.captured.captured import StoredTurn, stored_turns
from clawpipe.data.ingest.intake.admission import stored_files
from clawpipe.data.ingest.intake.state import logs
from clawpipe.errors import NotFoundError

_REJECTED = "select row_id, reasons[1] from read_parquet($files, union_by_name = true) where starts_with(row_id, $folder)"


class TurnStatus(BaseModel):
    """A captured turn and its status."""

    model_config = ConfigDict(frozen=True, extra="forbid", serialize_by_alias=True)

    number: int
    id: str
    response_id: str | None
    time: str
    turn_type: str
    turn_type_from: str = Field(description="where the turn's type was found")
    api: str = Field(description="how the client asked")
    seconds: float = Field(description="how long the answer took")
    relation: str = Field(description="starts, continues, regenerates or branches")
    continues: int | None = Field(description="number of the turn that it continues")
    answers: int
    tokens: int = Field(description="sampled tokens that are recorded")
    no_tokens: str | None = Field(description="why none are")
    ending: str
    faults: list[str] = Field(description="why its answers do not teach, where the turn's type is not the reason")
    model: str | None
    model_version: str | None
    digest: str | None = Field(description="of the registered version that answered")
    upstream: str = Field(description="address of the engine that answered")
    usage: JsonObject | None = Field(description="tokens, as the engine counted them")
    policy_version: str | None
    feedback: list[JsonObject]
    status: str = Field(serialization_alias="fate", description="goes on, waits, stored, or rejected")
    trajectory_id: str | None = None
    reason: str | None = Field(default=None, description="why ingest rejected it")


class SessionStatus(BaseModel):
    """A captured session and the statuses of its turns."""

    model_config = ConfigDict(frozen=True, extra="forbid", serialize_by_alias=True)

    session: str
    key: str
    user: str | None
    parent: str | None
    session_from: str
    closed: bool
    last: str
    main: int
    side: int
    with_tokens: int
    feedback: int
    statuses: dict[str, int] = Field(serialization_alias="fates", description="number of turns by fate")
    turns: list[TurnStatus]


def captured_records(home: Home) -> Iterator[tuple[Path, int, Record]]:
    """Yield every captured record with its segment and line."""
    for path in segments(segments_dir(home)):
        yield from ((path, one.line, one.record) for one in read_segment(path))


def captured_sessions(home: Home) -> list[SessionStatus]:
    """Return all captured sessions, the last used one first."""
    located = list(captured_records(home))
    sessions = sessions_of(in_written_order((str(path), line, record) for path, line, record in located))
    stored, rejected = _stored(home, {name for _, name in sessions}), _rejected(home)
    lines = {id(record): f"{path.resolve()}:{line}" for path, line, record in located}
    now, idle = time.time(), session_settings(home.root).idle_seconds
    statuses = [
        _session_status(
            one, one.is_closed(now, idle), stored, {turn.number: rejected.get(lines[id(turn.record)]) for turn in one.turns}
        )
        for one in sessions.values()
    ]
    return sorted(statuses, key=lambda one: one.last, reverse=True)


def captured_session(home: Home, name: str) -> SessionStatus:
    """Return one session; of several with the id, which belong to different keys, the last used one.

    Raises:
        NotFoundError: nothing was captured of it.
    """
    found = next((one for one in captured_sessions(home) if one.session == name), None)
    if found is None:
        raise NotFoundError(
            f"nothing is captured of a session {name!r}", str(segments_dir(home)), "`clawpipe sessions list` shows all"
        )
    return found


def _stored(home: Home, names: set[str]) -> dict[str, StoredTurn]:
    store, found = open_store(home), dict[str, StoredTurn]()
    for state in logs(home).values():
        found |= stored_turns(store, stored_files(store, state.datasets, "trajectories"), names, everything=False)
    return found


def _rejected(home: Home) -> dict[str, str]:
    """Return the reason of each line of a segment that ingest has rejected, by `file:line`."""
    store, folder = open_store(home), str(segments_dir(home).resolve())
    found: dict[str, str] = {}
    for state in logs(home).values():
        if files := stored_files(store, state.datasets, "quarantine"):
            with duck_session(store, files) as duck:
                rows = duck.execute(_REJECTED, {"files": [str(file) for file in files], "folder": folder}).fetchall()
            found |= {place.partition("@")[0]: reason for place, reason in rows}
    return found


def _session_status(
    session: Session, closed: bool, stored: dict[str, StoredTurn], rejected: dict[int, str | None]
) -> SessionStatus:
    turns = [_turn_status(turn, stored.get(turn.record.id), rejected[turn.number], closed) for turn in session.turns]
    kinds, statuses = [turn.turn_type for turn in turns], [turn.status for turn in turns]
    return SessionStatus(
        session=session.name,
        key=session.key,
        user=session.turns[-1].record.user,
        parent=session.parent,
        session_from=session.turns[-1].record.session_from,
        closed=closed,
        last=_moment(session.last),
        main=kinds.count("main"),
        side=kinds.count("side"),
        with_tokens=sum(turn.tokens > 0 for turn in turns),
        feedback=sum(len(turn.feedback) for turn in turns),
        statuses={status: statuses.count(status) for status in dict.fromkeys(statuses)},
        turns=turns,
    )


def _turn_status(turn: SessionTurn, stored: StoredTurn | None, reason: str | None, closed: bool) -> TurnStatus:
    record = turn.record
    feedback = [
        {"time": _moment(one.time), "value": one.value, "correction": one.correction, "comment": one.comment}
        for one in turn.feedback
    ]
    status = "stored" if stored else "rejected" if reason else "waits" if closed else "goes on"
    return TurnStatus(
        number=turn.number,
        id=record.id,
        response_id=record.response_id,
        time=_moment(record.time),
        turn_type=record.turn_type,
        turn_type_from=record.turn_type_from,
        api=record.api,
        seconds=round(record.seconds, 3),
        relation=turn.relation,
        continues=turn.parent.turn.number if turn.parent else None,
        answers=len(record.answers),
        tokens=sum(len(answer.token_ids or ()) for answer in record.answers),
        no_tokens=record.no_tokens,
        ending=record.ending,
        faults=sorted(faults_of(record)),
        model=record.model,
        model_version=record.model_version,
        digest=record.digest,
        upstream=name_of(record.upstream) if is_url(record.upstream) else record.upstream,
        usage=record.usage,
        policy_version=record.policy_version,
        feedback=feedback,
        status=status,
        trajectory_id=stored.place.trajectory_id if stored else None,
        reason=None if stored else reason,
    )


def _moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")
