"""The turns of sessions, which are joined over all files when these have been read."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace

from clawpipe.data.capture.sessions import Reply, Session
from clawpipe.data.importers.formats.capture import Captured, Captures, chains
from clawpipe.data.importers.formats.captured_faults import corrections, faults, taught
from clawpipe.data.importers.formats.captured_rows import conversation_of
from clawpipe.data.importers.formats.openclaw import JudgeRecord, Sessions, TurnRecord
from clawpipe.data.importers.formats.table import CAPTURE
from clawpipe.data.importers.read.checked import check_part
from clawpipe.data.importers.read.reading import Reading, Record
from clawpipe.data.importers.record import Conversation, Origin, Preference, Prompt
from clawpipe.data.importers.sources.lines import Place
from clawpipe.data.importers.strict_json import RefusedError

Check = Callable[[Conversation | Preference | Prompt], None]
Turn = TurnRecord | JudgeRecord | Captured


class Joining:
    """Keeps the turns of sessions, and joins them.

    Args:
        reading: receives the counts.
        check: a further check of each record; its RefusedError refuses the lines.
        idle: seconds without a turn after which a captured session has ended.

    Attributes:
        captures: what gateways captured.
    """

    def __init__(self, reading: Reading, check: Check | None, idle: float) -> None:
        self._reading, self._check = reading, check
        self._sessions, self.captures = Sessions(), Captures(idle)

    def add(self, turn: Turn, origin: Origin) -> None:
        if isinstance(turn, Captured):
            self.captures.add(turn)
        else:
            self._sessions.add(turn, origin)

    def joined(self, stored: Collection[str] = ()) -> Iterator[Record]:
        """Yield the conversations of the turns in all files, with their judgements.

        Args:
            stored: ids of captured turns that are stored already.
        """
        yield from map(self._reading.silenced, self._sessions.joined())
        self._reading.unmatched = sum(map(len, self.orphans().values()))
        for session in self.captures.ended():
            for chain in chains(session, stored):
                yield from self._captured(session, chain)
        for line in (one.line for one in self.captures.open()):
            self._reading.lines, self._reading.waiting[line.file] = self._reading.lines - 1, self._reading.waiting[line.file] + 1
            before = Place(line.number - 1, line.offset)
            self._reading.places[line.file] = min(before, self._reading.places[line.file], key=lambda place: place.offset)

    def _captured(self, session: Session, chain: Sequence[Reply]) -> Iterator[Record]:
        """Yield the records of one chain of replies; if that fails, refuse each of their lines."""
        line = self.captures.line_of(chain[0])
        try:
            conversation, silent = taught(conversation_of(session, chain, line))
            made = [
                self._heard(conversation),
                *corrections(session, chain, Origin(CAPTURE, line.file, line.number)),
            ]
            for part in made:
                check_part(part)
                if self._check:
                    self._check(part)
            self._reading.silent += faults(chain) + silent
            yield from made
        except (RefusedError, RecursionError) as error:
            for one in dict.fromkeys(map(self.captures.line_of, chain)):
                yield self._reading.refuse(one, error)

    def orphans(self) -> dict[tuple[str, int], list[JudgeRecord]]:
        """Return the judge records without a turn in the files, by session and number of the turn."""
        return self._sessions.orphans()

    def _heard(self, conversation: Conversation) -> Conversation:
        """Return a captured conversation without turns of which nothing can be learned; recorded tokens are what was sampled."""
        if conversation.row is None or conversation.row["tokens"] != "none":
            return conversation
        conversation = self._reading.silenced(conversation)
        return replace(conversation, row={**(conversation.row or {}), "kinds": conversation.kinds})
