"""Assemble sessions and turns from the records of segments.

What a turn continues is found by its history and not by counting: a request whose history begins with a recorded prompt and one of
its answers continues that turn, and what follows in the history is the turn's next state. So requests of one session at the same
time do not mix. System prompts do not count, because agents write the time into them, nor do thoughts, which agents leave out of
histories.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.data.capture.records import Answer, Done, Feedback, Record, Turn
from clawpipe.data.capture.settings import IDLE_SECONDS
from clawpipe.data.wire.arguments import listed_calls
from clawpipe.data.wire.histories import counts, history_digest
from clawpipe.data.wire.texts import joined_texts, texts_of
from clawpipe.data.wire.thoughts import FIELDS, split_thought, with_thoughts, words_of

Relation = Literal["starts", "continues", "regenerates", "branches"]
Key = tuple[str, str]  # name of the key and id of the session: sessions of two keys never mix

_NONE: Mapping[Key, int] = {}


@dataclass(eq=False)
class Reply:
    """One answer of a turn. `follower` is the first turn that continues it, `next_state` the messages that the follower's history
    adds."""

    turn: SessionTurn
    answer: Answer
    index: int
    follower: SessionTurn | None = None
    next_state: list[JsonObject] = field(default_factory=list)


@dataclass(eq=False)
class SessionTurn:
    """A turn in its session.

    Attributes:
        number: its place in the session, from 1.
        parent: the reply that it continues.
        repeats: the turn whose prompt it repeats: both answers are alternatives.
        keeps_thought: whether its history has the thought of the reply that it continues.
    """

    record: Turn
    number: int
    relation: Relation = "starts"
    parent: Reply | None = None
    repeats: SessionTurn | None = None
    keeps_thought: bool = True
    replies: list[Reply] = field(default_factory=list)
    feedback: list[Feedback] = field(default_factory=list)

    @property
    def chosen(self) -> Reply | None:
        """The reply that the session went on with, else the first one; None if there is none."""
        return next((reply for reply in self.replies if reply.follower), self.replies[0] if self.replies else None)


class Session:
    """The turns of one session in their order. `before` counts earlier ones; `ended` tells whether its client said after the last
    one that it ends."""

    def __init__(self, key: str, name: str, before: int = 0) -> None:
        self.key, self.name, self.before = key, name, before
        self.turns: list[SessionTurn] = []
        self.ended = False

    @property
    def last(self) -> float:
        """The latest time at which a turn of it was recorded."""
        return max((turn.record.time for turn in self.turns), default=0.0)

    def numbered(self, number: int) -> SessionTurn | None:
        """Return the turn with a number; None if it is not among these."""
        place = number - self.before - 1
        return self.turns[place] if 0 <= place < len(self.turns) else None

    def is_closed(self, now: float, idle: float = IDLE_SECONDS) -> bool:
        """Whether its client has ended it, or it has been idle for so many seconds."""
        return self.ended or now - self.last > idle

    @property
    def parent(self) -> str | None:
        """The session that started this one."""
        return next((turn.record.parent for turn in self.turns if turn.record.parent), None)


def sessions_of(records: Iterable[Record], before: Mapping[Key, int] = _NONE) -> dict[Key, Session]:
    """Return the sessions in the order in which they began, with their turns related to each other, and feedback at its turn.

    Args:
        records: in the order in which they were written (`clawpipe.data.capture.order`). A turn that stands before the one whose
            answer its history holds comes after it all the same.
        before: how many turns of a session came before these records.
    """
    listed = list(records)
    found: dict[Key, Session] = {}
    for turn in _after_their_parents([one for one in listed if isinstance(one, Turn)]):
        name = (turn.key, turn.session)
        session = found.setdefault(name, Session(*name, before.get(name, 0)))
        session.turns.append(SessionTurn(turn, session.before + len(session.turns) + 1))
    for session in found.values():
        _relate(session.turns)
    for one in listed:
        if isinstance(one, Turn | Done) and (session := found.get((one.key, one.session))):
            session.ended = one.done if isinstance(one, Turn) else True
    _add_feedback(found, (one for one in listed if isinstance(one, Feedback)))
    return found


def _after_their_parents(turns: Sequence[Turn]) -> Iterator[Turn]:
    """Yield turns in their order, but each after those of its session whose answers its history holds: two gateways may have
    clocks that differ."""
    histories = [_digests(list(_objects(turn.request.get("messages")))) for turn in turns]
    makers: dict[tuple[str, str, bytes], int] = {}
    for place, (turn, history) in enumerate(zip(turns, histories, strict=True)):
        for answer in turn.answers:
            makers.setdefault((turn.key, turn.session, _digest(history[-1], answer.message)), place)
    done, waiting = set[int](), list(range(len(turns) - 1, -1, -1))
    while waiting:
        turn, history = turns[waiting[-1]], histories[waiting[-1]]
        held = (makers.get((turn.key, turn.session, digest), -1) for digest in history[1:])
        earlier = [place for place in held if place not in done and place not in (-1, waiting[-1])]
        if earlier and waiting[-1] not in done:
            waiting += reversed(earlier)
            continue
        if waiting[-1] not in done:
            done.add(waiting[-1])
            yield turn
        waiting.pop()


def _add_feedback(sessions: dict[Key, Session], feedback: Iterable[Feedback]) -> None:
    """Add each feedback record to its turn. A key gives feedback on its own turns only."""
    by_id = {
        (session.key, name): turn
        for session in sessions.values()
        for turn in session.turns
        for name in (turn.record.id, turn.record.response_id)
        if name
    }
    for one in feedback:
        session = sessions.get((one.key, one.session or ""))
        by_number = session.numbered(one.turn) if session and one.turn else None
        if turn := by_id.get((one.key, one.response_id or "")) or by_number:
            turn.feedback.append(one)


def _relate(turns: Sequence[SessionTurn]) -> None:
    """Find what each turn continues or repeats, among the turns before it."""
    replies: dict[bytes, Reply] = {}
    prompts: dict[bytes, SessionTurn] = {}
    for turn in turns:
        messages = list(_objects(turn.record.request.get("messages")))
        digests = _digests(messages)
        place = next((place for place in range(len(digests) - 1, 0, -1) if digests[place] in replies), None)
        turn.parent = replies[digests[place]] if place else None
        if turn.parent and place:
            turn.keeps_thought = _thought(_counted(messages)[place - 1]) == _thought(turn.parent.answer.message)
        turn.repeats = prompts.get(digests[-1])
        turn.relation = _relation(turn, messages, bool(prompts))
        if turn.parent and turn.parent.follower is None and place:
            turn.parent.follower = turn
            turn.parent.next_state = _after(messages, place)
        prompts.setdefault(digests[-1], turn)
        for index, answer in enumerate(turn.record.answers):
            reply = Reply(turn, answer, index)
            turn.replies.append(reply)
            replies[_digest(digests[-1], answer.message)] = reply


def _relation(turn: SessionTurn, messages: Sequence[JsonObject], has_earlier: bool) -> Relation:
    if turn.repeats:
        return "regenerates"
    if turn.parent:
        return "branches" if turn.parent.follower else "continues"
    return "branches" if has_earlier and any(one.get("role") == "assistant" for one in messages) else "starts"


def _after(messages: Sequence[JsonObject], place: int) -> list[JsonObject]:
    """Return the messages after the first `place` ones that count."""
    return _counted(messages)[place:]


def _counted(messages: Sequence[JsonObject]) -> list[JsonObject]:
    return [one for one in messages if counts(one.get("role"))]


def _thought(message: JsonObject) -> str:
    """Return what a message of the model thinks, in its text or in a field of its own."""
    text = joined_texts("assistant", texts_of(message.get("content")) or ())
    beside = [thought for name in FIELDS if isinstance(thought := message.get(name), str)]
    return words_of(split_thought(with_thoughts(text, beside[:1]))[0])


def _digests(messages: Sequence[JsonObject]) -> list[bytes]:
    """Return digests of the first 0, 1, 2 and so on messages that count."""
    digests = [b""]
    for message in messages:
        if counts(message.get("role")):
            digests.append(_digest(digests[-1], message))
    return digests


def _digest(before: bytes, message: JsonObject) -> bytes:
    role, content = message.get("role"), message.get("content")
    texts = texts_of(content)
    return history_digest(before, role, content if texts is None else joined_texts(str(role), texts), listed_calls(message))


def _objects(value: Any) -> Iterator[JsonObject]:
    return (one for one in value if isinstance(one, dict)) if isinstance(value, list) else iter(())
