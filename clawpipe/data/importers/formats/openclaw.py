"""Read turn records and judge records of OpenClaw-RL.

A turn record holds the whole request history, the response, and the next state, which is the message that followed. Turns of a
session are joined into one conversation as long as each history continues the turn before; an edited or compacted history
begins a new one. Judge records of Binary RL (`score`), OPD and combine (`accepted`, `hint`) or top-K selection (`hints`) are
joined by session and turn. The records hold neither tokens nor log-probs nor the model's version.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.core.conversation.messages import Message
from clawpipe.data.importers.fields import Fields, take_tools
from clawpipe.data.importers.message import read_message, read_messages
from clawpipe.data.importers.record import SIDE, Conversation, Judgement, Kind, Origin, counted, first_request
from clawpipe.data.importers.strict_json import RefusedError
from clawpipe.data.importers.toolcalls import split_calls
from clawpipe.data.wire.marked import without_end
from clawpipe.data.wire.thoughts import with_opening

_JUDGED = ("votes", "accepted", "score", "hint", "hints")
_LEAST_HINT = 10  # characters; a shorter text is not a hint


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
    """A judge's record of one turn. Without a score (`scored` is False) it is a hint only."""

    session: str
    turn: int
    judgement: Judgement
    scored: bool = True


def is_turn(record: JsonObject) -> bool:
    return "session_id" in record and "turn" in record and "response_text" in record


def is_judge(record: JsonObject) -> bool:
    return "session_id" in record and "turn" in record and any(name in record for name in _JUDGED)


def read_turn(record: JsonObject) -> TurnRecord:
    """Read a turn record.

    Raises:
        RefusedError: a field is missing or has another type.
    """
    fields = Fields(record)
    session, turn = fields.take("session_id", str), fields.take("turn", int)
    read = read_messages(fields.take("messages", list))
    history = read.messages
    first_request(history)
    prompt = fields.take("prompt_text", str, default="")  # the history again, as the chat template wrote it
    replies = {"content": fields.take("response_text", str), "tool_calls": fields.take("tool_calls", list, default=[])}
    following = fields.take("next_state", dict, default=None)
    after = read_messages([following] if following else [], "next_state")
    tools = take_tools(fields)
    kind: Kind = "side" if fields.take("turn_type", str, default="main") in SIDE or _is_side(session) else "main"
    return TurnRecord(
        session,
        turn,
        kind,
        history,
        _without_markup(read_message({"role": "assistant"} | replies, turn), prompt, turn),
        after.messages,
        fields.rest | ({"next_state": after.unknown} if after.unknown else {}),
        tools,
        tuple(read.unknown),
        read.unread,
    )


def read_judge(record: JsonObject) -> JudgeRecord:
    """Read a judge record of any method.

    Raises:
        RefusedError: a field is missing or has another type.
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
    """Remove the chat template's markup: an end token, calls in the text, and a thought tag that is in the prompt."""
    content = without_end(response.content)
    text, spelled = split_calls(with_opening(content, prompt), turn)
    calls = response.tool_calls
    unread = [call for call in spelled if call.malformed or not calls] if len(spelled) > len(calls) else []
    return msgspec.structs.replace(response, content=text, tool_calls=(*unread, *calls))


class Sessions:
    """Collects turns and judgements from all files, and joins them at the end."""

    def __init__(self) -> None:
        self._turns: dict[tuple[str, Kind], list[Placed]] = {}
        self._judged: dict[tuple[str, int], list[JudgeRecord]] = {}
        self._messages: dict[Message, Message] = {}

    def add(self, record: TurnRecord | JudgeRecord, origin: Origin | None = None) -> None:
        if isinstance(record, JudgeRecord):
            self._judged.setdefault((record.session, record.turn), []).append(record)
        else:
            self._turns.setdefault((record.session, record.kind), []).append((self._shared(record), origin))

    def joined(self) -> Iterator[Conversation]:
        """Yield the conversations in the order in which sessions begin, with turns in the order of their numbers."""
        for parts in self._turns.values():
            for chain in _chains(sorted(parts, key=lambda part: part[0].turn)):
                yield _conversation(chain, self._judged)

    def orphans(self) -> dict[tuple[str, int], list[JudgeRecord]]:
        """Return the judgements without a turn, by session and number of the turn."""
        known = {(turn.session, turn.turn) for parts in self._turns.values() for turn, _ in parts}
        return {turn: records for turn, records in self._judged.items() if turn not in known}

    def _shared(self, record: TurnRecord) -> TurnRecord:
        """Share equal messages between the histories: every turn repeats those of the turns before it."""
        return replace(record, history=tuple(self._messages.setdefault(message, message) for message in record.history))


def _is_side(session: str) -> bool:
    return any(part in SIDE for part in session.lower().replace("-", ":").replace("_", ":").split(":"))


def _chains(turns: Sequence[Placed]) -> Iterator[list[Placed]]:
    """Yield runs of turns, in which each turn continues the one before."""
    chain: list[Placed] = []
    for turn in turns:
        if chain and not _continues(chain[-1][0], turn[0]):
            yield chain
            chain = []
        chain.append(turn)
    if chain:
        yield chain


def _continues(before: TurnRecord, after: TurnRecord) -> bool:
    expected = [*before.history, before.response]
    return [_without_ids(one) for one in after.history[: len(expected)]] == [_without_ids(one) for one in expected]


def _without_ids(message: Message) -> tuple[str, str, tuple[tuple[str, str], ...]]:
    """Return a message without call ids, which some clients make up anew."""
    return message.role, message.content.strip(), tuple((call.name, call.arguments) for call in message.tool_calls)


def _conversation(placed: Sequence[Placed], judged: Mapping[tuple[str, int], Sequence[JudgeRecord]]) -> Conversation:
    chain = [turn for turn, _ in placed]
    last = chain[-1]
    messages = (*last.history, last.response, *last.following)
    replies = sum(message.role == "assistant" for message in messages)
    turns = {sum(message.role == "assistant" for message in turn.history): turn for turn in chain}  # by the index of its reply
    kinds: tuple[Kind, ...] = tuple(turns[index].kind if index in turns else "side" for index in range(replies))
    judgements = [_at(one, index) for index, turn in turns.items() for one in merged(judged.get((turn.session, turn.turn), ()))]
    extra: JsonObject = {"turns": [{"turn": turn.turn, "reply": index} | dict(turn.extra) for index, turn in turns.items()]}
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
        context=replies - len(turns),
        **counted(messages),
    )


def merged(records: Sequence[JudgeRecord]) -> list[Judgement]:
    """Merge the judgements of one turn: hints without a score join the scored judgement, else they would count as a score of 0."""
    scored = [record.judgement for record in records if record.scored]
    hinted = [record.judgement for record in records if not record.scored]
    if not scored or not hinted:
        return scored or hinted
    hints = tuple(hint for one in hinted for hint in one.hints)
    evidence = dict(scored[0].evidence) | {"hinted": [one.evidence for one in hinted]}
    return [replace(scored[0], hints=(*scored[0].hints, *hints), evidence=evidence), *scored[1:]]


def _at(judgement: Judgement, index: int) -> Judgement:
    return replace(judgement, turn=index)
