"""Find turns that are stored already: if a session is exported again with more turns, its earlier turns become context.

A turn is stored already if another conversation of the same session and user teaches it after the same history; where a log of
requests repeats a turn as history it teaches nothing, and the request itself may come later. What clients leave out of histories,
such as thoughts, does not count. Both sides are compared after redaction.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from itertools import compress
from pathlib import Path

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.core.contracts.schema import schema_of
from clawpipe.core.conversation.messages import Message
from clawpipe.core.store.artifacts import Store
from clawpipe.core.store.duck import session
from clawpipe.data.ingest.intake.claims import Claim
from clawpipe.data.ingest.intake.digests import DigestSet
from clawpipe.data.ingest.intake.rows import messages_json
from clawpipe.data.wire.histories import counts, said_in

_STORED = """
    with stored as (from layout union all by name select * from read_parquet($files, union_by_name = true))
    select session_id, user_id, messages, case when len(turns) > 0 then [turn.kind for turn in turns] else kinds end
    from stored where session_id in (select unnest($sessions))"""
_ROWS = 256


class Repeats:
    """Holds digests of the stored conversations, and of those of this run.

    Args:
        store, files: rows of earlier runs.
    """

    def __init__(self, store: Store, files: Sequence[Path]) -> None:
        self._store, self._files = store, files
        self._looked_up = DigestSet()
        self._turns = DigestSet()  # of histories up to a turn that is taught
        self._ends = DigestSet()  # of those up to a last turn
        self._wholes = DigestSet()  # of all messages and of what is taught

    def known_turns(self, claims: Sequence[Claim]) -> list[list[int]]:
        """Return for each conversation the places of its taught turns that another one teaches already; none for an exact copy."""
        named = {name for one in claims if one.turns for name in (one.session, one.earlier) if name}
        self._look_up({name for name in named if self._looked_up.add(hash(name))})
        return [self._known(one) if one.turns else [] for one in claims]

    def _known(self, claim: Claim) -> list[int]:
        known = _among(self._ends, claim.turns[:-1], claim.taught)
        if hash((claim.whole, _without(claim.taught, known))) not in self._wholes:  # else a further attempt, which counts once more
            known = _among(self._turns, claim.turns, claim.taught)
        known = sorted({*known, *_among(self._turns, claim.earlier_turns, claim.taught)})
        self._add(claim.turns, claim.whole, _without(claim.taught, known))
        return known

    def _add(self, turns: Sequence[int], whole: int, taught: bytes) -> None:
        for turn in compress(turns, taught):
            self._turns.add(turn)
        for end in compress(turns[-1:], taught[-1:]):
            self._ends.add(end)
        self._wholes.add(hash((whole, taught)))

    def _look_up(self, sessions: set[str]) -> None:
        for name, user, messages, kinds in self._stored(sessions) if sessions and self._files else ():
            said = [Message.from_dict(message) for message in messages]
            turns, whole = turn_digests(name, user, said), whole_digest(name, user, messages_json(said))
            self._add(turns, whole, taught_turns(kinds or ["main"] * len(turns), len(turns)))

    def _stored(self, sessions: set[str]) -> Iterator[tuple[str, str | None, list[JsonObject], list[str] | None]]:
        with session(self._store, self._files) as duck:
            duck.register("layout", schema_of("trajectories").empty_table())  # older files lack a column
            parameters = {"files": [str(file) for file in self._files], "sessions": sorted(sessions)}
            found = duck.execute(_STORED, parameters)
            while rows := found.fetchmany(_ROWS):
                yield from rows


def taught_turns(kinds: Sequence[str], replies: int) -> bytes:
    """Return a byte for each assistant message: 1 if it is taught. `kinds` are those of the last ones; those before are context."""
    mains = bytes(kind == "main" for kind in kinds).rjust(replies, b"\0")
    return mains[len(mains) - replies :]


def _among(stored: DigestSet, turns: Sequence[int], taught: bytes) -> list[int]:
    return [place for place, (turn, is_taught) in enumerate(zip(turns, taught, strict=False)) if is_taught and turn in stored]


def _without(taught: bytes, known: Sequence[int]) -> bytes:
    left = bytearray(taught)
    for place in known:
        left[place] = 0
    return bytes(left)


def turn_digests(name: str | None, user: str | None, messages: Sequence[Message]) -> list[int]:
    """Return digests (63 bits, the same in every process) of the history up to each turn."""
    history, turns = hashlib.blake2b(_owner(name, user), digest_size=8), list[int]()
    for message in messages:
        if counts(message.role):
            history.update(said_in(message.role, message.content, message.tool_calls))
        if message.role == "assistant":
            turns.append(_number(history.digest()))
    return turns


def whole_digest(name: str | None, user: str | None, written: bytes) -> int:
    """Return a digest (63 bits) of all messages to the letter, as `messages_json` writes them."""
    return _number(hashlib.blake2b(_owner(name, user) + written, digest_size=8).digest())


def _owner(name: str | None, user: str | None) -> bytes:
    return repr((name, user)).encode()


def _number(digest: bytes) -> int:
    return int.from_bytes(digest) >> 1
