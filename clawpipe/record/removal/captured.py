"""Forget what the gateway has captured: its segments are rewritten without the records."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from clawpipe.core.store.artifacts import Store
from clawpipe.core.store.files import write_atomic
from clawpipe.core.store.home import Home
from clawpipe.data.capture.records import DamagedError, Done, Feedback, Record, Turn, line_of, read_line
from clawpipe.data.capture.segments import read_segment, segments, segments_dir, try_lock
from clawpipe.data.forgotten.find import Findings
from clawpipe.data.forgotten.subject import Subject, session_name, spellings
from clawpipe.data.ingest.captured.captured import stored_turns
from clawpipe.data.ingest.intake.admission import stored_files
from clawpipe.data.ingest.intake.state import logs

_WAIT_SECONDS = 5.0  # a gateway lets its segment go within half a second of a new tombstone
_LOOK_SECONDS = 0.1


@dataclass(frozen=True)
class CapturedRecords:
    """The records that a subject names: turns by their ids, ends of sessions, and feedback; and the keys of the turns."""

    turns: frozenset[str]
    names: frozenset[str]
    done: frozenset[tuple[str, str]]
    keys: frozenset[str]

    def covers(self, record: Record) -> bool:
        """Whether a record is to be removed."""
        match record:
            case Turn():
                return record.id in self.turns
            case Feedback():
                return record.response_id in self.names or (record.key, record.session) in self.done
            case Done():
                return (record.key, record.session) in self.done
            case _:
                return False


def captured_of(home: Home, store: Store, subject: Subject, found: Findings) -> CapturedRecords:
    """Return the records that a subject names, before its rows are removed."""
    is_named = _naming(home, store, subject, found)
    records = [one.record for path in segments(segments_dir(home)) for one in read_segment(path)]
    turns = [one for one in records if isinstance(one, Turn)]
    gone = [one for one in turns if is_named(one)]
    left = {(one.key, one.session) for one in turns} - {(one.key, one.session) for one in gone}
    return CapturedRecords(
        frozenset(one.id for one in gone),
        frozenset(name for one in gone for name in (one.id, one.response_id) if name),
        frozenset((one.key, one.session) for one in gone) - left,
        frozenset(one.key for one in gone),
    )


def forget_captured(home: Home, gone: CapturedRecords) -> list[Path]:
    """Rewrite the segments without the records. Returns the segments that a gateway kept locked, which still hold some of the
    records."""
    if not gone.turns:
        return []
    return [path for path in segments(segments_dir(home)) if not _rewritten(path, gone)]


def _naming(home: Home, store: Store, subject: Subject, found: Findings) -> Callable[[Turn], bool]:
    sessions = frozenset({subject.name if subject.session else ""} | (found.sessions - found.shared))

    def is_in(key: str, session: str | None) -> bool:
        return session is not None and (session in sessions or session_name(key, session) in sessions)

    match subject.kind:
        case "session":
            return lambda turn: is_in(turn.key, turn.session) or is_in(turn.key, turn.parent)
        case "user":
            return lambda turn: turn.user == subject.user or (turn.user is None and is_in(turn.key, turn.session))
        case "text":
            texts = [one.encode() for one in spellings(subject.id)]
            return lambda turn: any(text in line_of(turn) for text in texts)
        case "trajectory":
            ids = _turns_of(home, store, found.trajectories)
            return lambda turn: turn.id in ids
    return lambda _: False  # a file that was read is its owner's: nothing is removed from it


def _turns_of(home: Home, store: Store, trajectories: Collection[str]) -> set[str]:
    ids = set[str]()
    for state in logs(home).values():
        stored = stored_turns(store, stored_files(store, state.datasets, "trajectories"), (), everything=True)
        ids |= {name for name, turn in stored.items() if turn.place.trajectory_id in trajectories}
    return ids


def _rewritten(path: Path, gone: CapturedRecords) -> bool:
    """Rewrite one segment, if it holds any of the records. Returns whether it holds none now."""
    if not any(gone.covers(one.record) for one in read_segment(path)):
        return True
    with _let_go(path) as free:
        if free:
            write_atomic(path, b"".join(line for line in path.read_bytes().splitlines(keepends=True) if not _goes(line, gone)))
            path.chmod(0o600)
        return free


def _goes(line: bytes, gone: CapturedRecords) -> bool:
    try:
        return gone.covers(read_line(line.removesuffix(b"\n")))
    except DamagedError:
        return True  # nobody can tell whose it is


@contextmanager
def _let_go(path: Path) -> Iterator[bool]:
    """Wait until no gateway writes to a segment, and yield whether it is locked for this process."""
    descriptor, deadline = os.open(path, os.O_RDWR), time.monotonic() + _WAIT_SECONDS
    try:
        while not (free := try_lock(descriptor)) and time.monotonic() < deadline:
            time.sleep(_LOOK_SECONDS)
        yield free
    finally:
        os.close(descriptor)
