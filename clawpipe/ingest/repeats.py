"""Turns that were stored before: of a session that is exported again with more turns, those that it had are context now.

A conversation goes on from another of the same session and user if it begins with all that was said up to its last turn. What is
compared has been redacted on both sides.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from clawpipe.importers.record import Conversation, Kind
from clawpipe.importers.survey import UNNAMED_SESSIONS
from clawpipe.messages import Message
from clawpipe.store.artifacts import Store
from clawpipe.store.duck import session

_STORED = """
    select session_id, user_id, messages from read_parquet($files, union_by_name = true)
    where session_id in (select unnest($sessions))"""
_ROWS = 256


class Repeats:
    """Knows the conversations of sessions that are stored, and those of this run.

    Args:
        store, files: rows of earlier runs.
        user: whose conversations they are, where they do not say.
    """

    def __init__(self, store: Store, files: Sequence[Path], user: str | None) -> None:
        self._store, self._files, self._user = store, files, user
        self._looked_up: set[int] = set()
        self._ends: set[int] = set()  # hashes of what was said up to a last turn, of a fraction of its size
        self._wholes: set[int] = set()

    def as_context(self, conversations: Sequence[Conversation]) -> list[Conversation]:
        """The same, in order, with turns as `side` that another one has as its own already. A copy of one stays as it is."""
        named = [one.session for one in conversations if one.session and one.session not in UNNAMED_SESSIONS and one.row is None]
        self._look_up({one for one in named if hash(one) not in self._looked_up})
        known = set(named)
        return [self._marked(one) if one.session in known and one.row is None else one for one in conversations]

    def _marked(self, conversation: Conversation) -> Conversation:
        turns, whole = _hashes(conversation.session, conversation.user or self._user, conversation.messages)
        again = whole in self._wholes
        told = max((number for number, turn in enumerate(turns[:-1] if again else turns, 1) if turn in self._ends), default=0)
        self._add(turns, whole)
        if not told:
            return conversation
        side: Kind = "side"
        kinds = (*(side for _ in range(told)), *conversation.kinds[told:])
        return replace(conversation, kinds=kinds)

    def _add(self, turns: Sequence[int], whole: int) -> None:
        self._ends.update(turns[-1:])
        self._wholes.add(whole)

    def _look_up(self, sessions: set[str]) -> None:
        self._looked_up |= set(map(hash, sessions))
        for name, user, messages in self._stored(sessions) if sessions and self._files else ():
            self._add(*_hashes(name, user, map(Message.from_dict, messages)))

    def _stored(self, sessions: set[str]) -> Iterator[tuple[str, str | None, list[dict]]]:
        with session(self._store, self._files) as duck:
            parameters = {"files": [str(file) for file in self._files], "sessions": sorted(sessions)}
            found = duck.execute(_STORED, parameters)
            while rows := found.fetchmany(_ROWS):
                yield from rows


def _hashes(name: str | None, user: str | None, messages: Iterable[Message]) -> tuple[list[int], int]:
    """Of what was said up to each turn, and of all of it; good for as long as the process lives."""
    said, turns = hash((name, user)), []
    for message in messages:
        said = hash((said, message))
        if message.role == "assistant":
            turns.append(said)
    return turns, said
