"""OpenClaw-RL: turn records, and the judge's records that belong to them.

A turn record holds the whole request history, the response and the next state, the message that followed. The turns of a
session are put together again: as long as a turn's history goes on from the turn before, they are one conversation; a
history that was edited or compacted begins a new one. Judge records, of Binary RL (`score`), OPD and combine (`accepted`,
`hint`) or top-K selection (`hints`), are joined by session and turn. The records hold neither tokens nor log-probs nor the
model's version.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from clawpipe.importers.message import read_message, read_messages
from clawpipe.importers.record import SIDE, Conversation, Fields, Judgement, Kind, Origin, counted, first_request, take_tools
from clawpipe.importers.strict_json import RefusedError
from clawpipe.importers.toolcalls import split_calls
from clawpipe.messages import Message

_JUDGED = ("votes", "accepted", "score", "hint", "hints")
_END = re.compile(r"(?:<\|(?:im_end|eot_id|end|endoftext)\|>\s*)+\Z")
_LEAST_HINT = 10  # characters; a shorter one is none


@dataclass(frozen=True)
class TurnRecord:
    """One captured turn."""

    session: str
    turn: int
    kind: Kind
    history: tuple[Message, ...]
    response: Message
    following: tuple[Message, ...]
    extra: Mapping[str, Any]
    tools: str | None = None
    unknown: Sequence[Mapping[str, Any]] = ()
    unread: frozenset[int] = frozenset()


Placed = tuple[TurnRecord, Origin | None]


@dataclass(frozen=True)
class JudgeRecord:
    """What the judge said of one turn. Without a score it is a hint: what would have been better, not how good it was."""

    session: str
    turn: int
    judgement: Judgement
    scored: bool = True


def is_turn(record: dict[str, Any]) -> bool:
    return "session_id" in record and "turn" in record and "response_text" in record


def is_judge(record: dict[str, Any]) -> bool:
    return "session_id" in record and "turn" in record and any(name in record for name in _JUDGED)


def read_turn(record: dict[str, Any]) -> TurnRecord:
    """A turn record.

    Raises:
        RefusedError: a field is missing or of another type.
    """
    fields = Fields(record)
    session, turn = fields.take("session_id", str), fields.take("turn", int)
    said = read_messages(fields.take("messages", list))
    history = said.messages
    first_request(history)
    prompt = fields.take("prompt_text", str, default="")  # the history once more, as a template wrote it
    spoken = {"content": fields.take("response_text", str), "tool_calls": fields.take("tool_calls", list, default=[])}
    following = fields.take("next_state", dict, default=None)
    after = read_messages([following] if following else [], "next_state")
    tools = take_tools(fields)
    kind: Kind = "side" if fields.take("turn_type", str, default="main") in SIDE or _is_side(session) else "main"
    return TurnRecord(
        session,
        turn,
        kind,
        history,
        _without_markup(read_message({"role": "assistant"} | spoken, turn), prompt, turn),
        after.messages,
        fields.rest | ({"next_state": after.unknown} if after.unknown else {}),
        tools,
        tuple(said.unknown),
        said.unread,
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
    given = [] if accepted is False else [hint, *hints]
    kept = tuple(text for text in given if isinstance(text, str) and len(text.strip()) > _LEAST_HINT)
    if score is None and accepted is None and not kept:
        raise RefusedError("score: missing")
    reason = fields.take("representative_eval", str, default="")
    evidence = {"votes": votes} | fields.rest
    judgement = Judgement(float(score or 0), "judge", turn=turn, reason=reason, hints=kept, evidence=evidence)
    return JudgeRecord(session, turn, judgement, score is not None)


def _without_markup(response: Message, prompt: str, turn: int) -> Message:
    """The response, which a template may have written: with the tag of a thought in the prompt, its calls spelled, and its end."""
    said = _END.sub("", response.content)
    said = f"<think>\n{said}" if prompt.rstrip().endswith("<think>") else said
    text, spelled = split_calls(said, turn)
    calls = response.tool_calls
    unread = [call for call in spelled if call.malformed or not calls] if len(spelled) > len(calls) else []
    return msgspec.structs.replace(response, content=text, tool_calls=(*unread, *calls))


class Sessions:
    """Turns and judgements as they come, from however many files, put together at the end."""

    def __init__(self) -> None:
        self._turns: dict[tuple[str, Kind], list[Placed]] = {}
        self._judged: dict[tuple[str, int], list[JudgeRecord]] = {}
        self._said: dict[Message, Message] = {}

    def add(self, record: TurnRecord | JudgeRecord, origin: Origin | None = None) -> None:
        if isinstance(record, JudgeRecord):
            self._judged.setdefault((record.session, record.turn), []).append(record)
        else:
            self._turns.setdefault((record.session, record.kind), []).append((self._shared(record), origin))

    def joined(self) -> Iterator[Conversation]:
        """Conversations of sessions, in the order in which these begin; turns in the order of their numbers."""
        for parts in self._turns.values():
            for chain in _chains(sorted(parts, key=lambda part: part[0].turn)):
                yield _conversation(chain, self._judged)

    def orphans(self) -> dict[tuple[str, int], list[JudgeRecord]]:
        """Judgements of turns that were not read, by session and number of the turn."""
        known = {(turn.session, turn.turn) for parts in self._turns.values() for turn, _ in parts}
        return {turn: records for turn, records in self._judged.items() if turn not in known}

    def _shared(self, record: TurnRecord) -> TurnRecord:
        """The record with its history's messages held once: every turn repeats all of those before it."""
        return replace(record, history=tuple(self._said.setdefault(message, message) for message in record.history))


def _is_side(session: str) -> bool:
    return any(part in SIDE for part in session.lower().replace("-", ":").replace("_", ":").split(":"))


def _chains(turns: Sequence[Placed]) -> Iterator[list[Placed]]:
    """Runs of turns of which each goes on from the one before."""
    chain: list[Placed] = []
    for turn in turns:
        if chain and not _goes_on(chain[-1][0], turn[0]):
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


def _conversation(placed: Sequence[Placed], judged: Mapping[tuple[str, int], Sequence[JudgeRecord]]) -> Conversation:
    chain = [turn for turn, _ in placed]
    last = chain[-1]
    messages = (*last.history, last.response, *last.following)
    spoken = sum(message.role == "assistant" for message in messages)
    own = {sum(message.role == "assistant" for message in turn.history): turn for turn in chain}  # index of each turn's reply
    kinds: tuple[Kind, ...] = tuple(own[index].kind if index in own else "side" for index in range(spoken))
    judgements = [_at(one, index) for index, turn in own.items() for one in merged(judged.get((turn.session, turn.turn), ()))]
    extra: dict[str, Any] = {"turns": [{"turn": turn.turn, "reply": index} | dict(turn.extra) for index, turn in own.items()]}
    if last.unknown:
        extra["messages"] = list(last.unknown)
    return Conversation(
        messages,
        kinds,
        first_request(messages),
        session=last.session,
        judgements=tuple(judgements),
        extra=extra,
        tools=last.tools,
        origin=placed[0][1],
        unread=last.unread,
        lines=len(chain),
        **counted(messages),
    )


def merged(records: Sequence[JudgeRecord]) -> list[Judgement]:
    """Judgements of one turn. Where two judges' files speak of it, hints join the score: alone they would count as one of 0."""
    scored = [record.judgement for record in records if record.scored]
    hinted = [record.judgement for record in records if not record.scored]
    if not scored or not hinted:
        return scored or hinted
    hints = tuple(hint for one in hinted for hint in one.hints)
    evidence = dict(scored[0].evidence) | {"hinted": [one.evidence for one in hinted]}
    return [replace(scored[0], hints=(*scored[0].hints, *hints), evidence=evidence), *scored[1:]]


def _at(judgement: Judgement, index: int) -> Judgement:
    return replace(judgement, turn=index)
