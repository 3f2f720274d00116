"""Read the segments of `clawpipe gateway`: their records become sessions, and the replies of a session conversations.

A session is read when it has ended: its client said so, or an hour has passed. Until then its lines wait, and are read again. Each
reply is in exactly one conversation: in one row with the reply before it as long as its prompt begins with that one's tokens, else
in a row of its own, in which earlier replies are context.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.data.capture.chains import chains_of
from clawpipe.data.capture.order import in_written_order
from clawpipe.data.capture.records import DamagedError, Feedback, Record, Turn, read_line
from clawpipe.data.capture.sessions import Key, Reply, Session, sessions_of
from clawpipe.data.capture.settings import IDLE_SECONDS
from clawpipe.data.importers.record import (
    Origin,
)
from clawpipe.data.importers.sources.lines import Line, Place
from clawpipe.data.importers.strict_json import RefusedError

FORMAT = "capture"


@dataclass(frozen=True)
class Captured:
    """A record and the line of its segment."""

    record: Record
    line: Line

    @property
    def place(self) -> Place:
        """The place in the file before the line."""
        return Place(self.line.number - 1, self.line.offset)


class Captures:
    """Collects records from all segments, and makes conversations of the sessions that have ended.

    Args:
        idle: seconds without a turn after which a session has ended.
    """

    def __init__(self, idle: float = IDLE_SECONDS) -> None:
        self._idle = idle
        self._lines: dict[int, Line] = {}  # by the identity of the record, which `_records` keeps alive
        self._records: list[Record] = []
        self.before: Mapping[Key, int] = {}  # how many turns of a session earlier runs have stored and these lines do not hold

    def add(self, captured: Captured) -> None:
        self._lines[id(captured.record)] = captured.line
        self._records.append(captured.record)

    @cached_property
    def _sessions(self) -> dict[Key, Session]:
        lines = ((self._lines[id(record)], record) for record in self._records)
        written = in_written_order((line.file, line.number, record) for line, record in lines)
        return sessions_of(written, self.before)  # asked for when all records are there

    @property
    def turns(self) -> set[str]:
        """Return the ids of the turns."""
        return {one.id for one in self._records if isinstance(one, Turn)}

    @property
    def has_feedback(self) -> bool:
        return any(isinstance(one, Feedback) for one in self._records)

    @property
    def names(self) -> set[str]:
        """Return the ids of the sessions."""
        return {session for one in self._records if (session := getattr(one, "session", None))}

    def ended(self, now: float | None = None) -> list[Session]:
        """Return the sessions that have ended by `now`, in seconds since 1970; None takes the clock's."""
        return [one for one in self._sessions.values() if one.is_closed(time.time() if now is None else now, self._idle)]

    def open(self, now: float | None = None) -> list[Captured]:
        """Return the lines of sessions that go on, and the feedback on their turns."""
        going_on = [one for one in self._sessions.values() if one not in self.ended(now)]
        names = {(one.key, one.name) for one in going_on}
        feedback = {id(each) for one in going_on for turn in one.turns for each in turn.feedback}
        records = (
            one for one in self._records if (isinstance(one, Turn) and (one.key, one.session) in names) or id(one) in feedback
        )
        return [Captured(record, self._lines[id(record)]) for record in records]

    def orphan_feedback(self) -> list[Feedback]:
        """Return the feedback on turns that are not among the lines: an earlier run has stored them."""
        known = {id(each) for one in self._sessions.values() for turn in one.turns for each in turn.feedback}
        return [one for one in self._records if isinstance(one, Feedback) and id(one) not in known]

    def origin_of(self, feedback: Feedback) -> Origin:
        """Return the place of a feedback record."""
        line = self._lines[id(feedback)]
        return Origin(FORMAT, line.file, line.number)

    def line_of(self, reply: Reply) -> Line:
        return self._lines[id(reply.turn.record)]


def is_capture(record: JsonObject) -> bool:
    return record.keys() == {"crc", "record"} and isinstance(record["record"], dict)


def read_capture(line: Line) -> Captured:
    """Read a line of a segment.

    Raises:
        RefusedError: the CRC does not match, or the record is not one of this version.
    """
    try:
        return Captured(read_line(line.data), line)
    except DamagedError as error:
        raise RefusedError(str(error).partition(" of this version")[0]) from None


def chains(session: Session, stored: Collection[str] = ()) -> Iterator[list[Reply]]:
    """Yield the replies of an ended session, one list per conversation. `stored` are ids of turns that are stored already."""
    return chains_of(session, stored)
