"""Find turns that are stored already: if a session is exported again with more turns, its earlier turns become context.

A turn is stored already if another conversation of the same session and user has it after the same history. What clients leave out
of histories, such as thoughts, does not count. Both sides are compared after redaction.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from clawpipe.core.conversation.messages import Message
from clawpipe.core.store.artifacts import Store
from clawpipe.core.store.duck import session
from clawpipe.data.ingest.intake.claims import Claim
from clawpipe.data.wire.histories import history_digest

_STORED = """
    select session_id, user_id, messages from read_parquet($files, union_by_name = true)
    where session_id in (select unnest($sessions))"""
_ROWS = 256
_encode = msgspec.json.Encoder(order="sorted").encode


class Repeats:
    """Holds digests of the stored conversations, and of those of this run.

    Args:
        store, files: rows of earlier runs.
    """

    def __init__(self, store: Store, files: Sequence[Path]) -> None:
        self._store, self._files = store, files
        self._looked_up: set[int] = set()
        self._turns: set[int] = set()  # digests of histories up to a turn
        self._ends: set[int] = set()  # those up to a last turn
        self._wholes: set[int] = set()  # digests of all messages

    def known_turns(self, claims: Sequence[Claim]) -> list[int]:
        """Return for each conversation how many of its first turns another one holds already; 0 for an exact copy."""
        named = {one.session for one in claims if one.turns and one.session}
        self._look_up({name for name in named if hash(name) not in self._looked_up})
        return [self._known(one) if one.turns else 0 for one in claims]

    def _known(self, claim: Claim) -> int:
        is_copy = claim.whole in self._wholes  # a further attempt, whose turns count once more
        turns, stored = (claim.turns[:-1], self._ends) if is_copy else (claim.turns, self._turns)
        known = max((number for number, turn in enumerate(turns, 1) if turn in stored), default=0)
        self._add(claim.turns, claim.whole)
        return known

    def _add(self, turns: Sequence[int], whole: int) -> None:
        self._turns.update(turns)
        self._ends.update(turns[-1:])
        self._wholes.add(whole)

    def _look_up(self, sessions: set[str]) -> None:
        self._looked_up |= set(map(hash, sessions))
        for name, user, messages in self._stored(sessions) if sessions and self._files else ():
            self._add(*turn_digests(name, user, [Message.from_dict(message) for message in messages]))

    def _stored(self, sessions: set[str]) -> Iterator[tuple[str, str | None, list[dict]]]:
        with session(self._store, self._files) as duck:
            parameters = {"files": [str(file) for file in self._files], "sessions": sorted(sessions)}
            found = duck.execute(_STORED, parameters)
            while rows := found.fetchmany(_ROWS):
                yield from rows


def turn_digests(name: str | None, user: str | None, messages: Sequence[Message]) -> tuple[list[int], int]:
    """Return digests of the history up to each turn, and of all messages to the letter: 63 bits, the same in every process."""
    owner = repr((name, user)).encode()
    digest, turns = owner, list[int]()
    for message in messages:
        digest = history_digest(digest, message.role, message.content, message.tool_calls)
        if message.role == "assistant":
            turns.append(_number(digest))
    return turns, _number(hashlib.blake2b(owner + _encode(messages), digest_size=8).digest())


def _number(digest: bytes) -> int:
    return int.from_bytes(digest[:8]) >> 1
