"""OpenClaw-RL: turn records, and the judge's records that belong to them.

A turn record holds the whole request history, the response and the next state, the message that followed. The turns of a
session are put together again: as long as a turn's history goes on from the turn before, they are one conversation; a
history that was edited or compacted begins a new one. Judge records, of Binary RL (`score`), OPD and combine (`accepted`,
`hint`) or top-K selection (`hints`), are joined by session and turn. The records hold neither tokens nor log-probs nor the
model's version.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from clawpipe.importers.chat import read_message
from clawpipe.importers.record import Conversation, Fields, Judgement, Kind, as_list, first_request
from clawpipe.importers.strict import RefusedError
from clawpipe.messages import Message

_SIDE_SESSIONS = ("heartbeat", "memory", "cron", "side")
_LEAST_HINT = 10  # characters; a shorter one is none


@dataclass(frozen=True)
class TurnRecord:
    """One captured turn."""

    session: str
    turn: int
    kind: Kind
    history: tuple[Message, ...]
    response: Message
    next_state: Message | None
    extra: Mapping[str, Any]


@dataclass(frozen=True)
class JudgeRecord:
    """What the judge said of one turn."""

    session: str
    turn: int
    judgement: Judgement


def is_turn(record: dict[str, Any]) -> bool:
    return "session_id" in record and "turn" in record and "response_text" in record


def is_judge(record: dict[str, Any]) -> bool:
    return "session_id" in record and "turn" in record and ("votes" in record or "accepted" in record)


def read_turn(record: dict[str, Any]) -> TurnRecord:
    """A turn record.

    Raises:
        RefusedError: a field is missing or of another type.
    """
    fields = Fields(record)
    session, turn = fields.take("session_id", str), fields.take("turn", int)
    history = tuple(read_message(part, number) for number, part in enumerate(as_list(fields.take("messages", list), "messages")))
    fields.take("prompt_text", str, default="")  # the history once more, as a template wrote it
    spoken = {"content": fields.take("response_text", str), "tool_calls": fields.take("tool_calls", list, default=[])}
    following = fields.take("next_state", dict, default=None)
    kind: Kind = "side" if fields.take("turn_type", str, default="main") in _SIDE_SESSIONS or _is_side(session) else "main"
    return TurnRecord(
        session,
        turn,
        kind,
        history,
        read_message({"role": "assistant"} | spoken, turn),
        read_message(following) if following else None,
        fields.rest,
    )


def read_judge(record: dict[str, Any]) -> JudgeRecord:
    """A judge's record, of whichever method.

    Raises:
        RefusedError: a field is missing or of another type.
    """
    fields = Fields(record)
    session, turn = fields.take("session_id", str), fields.take("turn", int)
    votes = fields.take("votes", list, default=[])
    score = fields.take("score", int, float, default=None)
    accepted = fields.take("accepted", bool, default=None)
    hint, hints = fields.take("hint", str, default=None), fields.take("hints", list, default=[])
    kept = tuple(text for text in [hint, *hints] if isinstance(text, str) and len(text.strip()) > _LEAST_HINT)
    if score is None and accepted is None:
        raise RefusedError("score: missing")
    reason = fields.take("representative_eval", str, default="")
    evidence = {"votes": votes} | fields.rest
    value = float(score) if score is not None else 0.0  # a hint says what would have been better, not how good it was
    return JudgeRecord(
        session,
        turn,
        Judgement(value, "judge", turn=turn, reason=reason, hints=kept if accepted is not False else (), evidence=evidence),
    )


def join_sessions(turns: Iterable[TurnRecord], judged: Mapping[tuple[str, int], Sequence[Judgement]]) -> Iterator[Conversation]:
    """Conversations of sessions, in the order in which these begin; turns in the order of their numbers.

    Args:
        judged: judgements by session and turn number.
    """
    sessions: dict[tuple[str, Kind], list[TurnRecord]] = {}
    for turn in turns:
        sessions.setdefault((turn.session, turn.kind), []).append(turn)
    for parts in sessions.values():
        for chain in _chains(sorted(parts, key=lambda part: part.turn)):
            yield _conversation(chain, judged)


def _is_side(session: str) -> bool:
    return any(part in _SIDE_SESSIONS for part in session.lower().replace("-", ":").replace("_", ":").split(":"))


def _chains(turns: Sequence[TurnRecord]) -> Iterator[list[TurnRecord]]:
    """Runs of turns of which each goes on from the one before."""
    chain: list[TurnRecord] = []
    for turn in turns:
        if chain and not _goes_on(chain[-1], turn):
            yield chain
            chain = []
        chain.append(turn)
    if chain:
        yield chain


def _goes_on(before: TurnRecord, after: TurnRecord) -> bool:
    told = [*before.history, before.response]
    return [_said(message) for message in after.history[: len(told)]] == [_said(message) for message in told]


def _said(message: Message) -> tuple[str, str, tuple[tuple[str, str], ...]]:
    """What a message says; ids of calls are made up anew by some clients."""
    return message.role, message.content.strip(), tuple((call.name, call.arguments) for call in message.tool_calls)


def _conversation(chain: Sequence[TurnRecord], judged: Mapping[tuple[str, int], Sequence[Judgement]]) -> Conversation:
    last = chain[-1]
    messages = (*last.history, last.response, *([last.next_state] if last.next_state else []))
    spoken = sum(message.role == "assistant" for message in messages)
    own = {sum(message.role == "assistant" for message in turn.history): turn for turn in chain}  # index of each turn's reply
    kinds: tuple[Kind, ...] = tuple(own[index].kind if index in own else "side" for index in range(spoken))
    judgements = [_at(judgement, index) for index, turn in own.items() for judgement in judged.get((turn.session, turn.turn), ())]
    extra = {"turns": [{"turn": turn.turn} | dict(turn.extra) for turn in chain]}
    return Conversation(messages, kinds, first_request(messages), session=last.session, judgements=tuple(judgements), extra=extra)


def _at(judgement: Judgement, index: int) -> Judgement:
    return Judgement(
        judgement.value, judgement.origin, judgement.success, index, judgement.reason, judgement.hints, judgement.evidence
    )
