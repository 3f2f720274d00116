"""Read the segments of `clawpipe gateway`: records become conversations with the tokens that were sampled, and preference pairs.

A session is read when it has ended: its client said so, or an hour has passed. Until then its lines wait, and are read again. Each
reply is in exactly one conversation: in one row with the reply before it as long as its prompt begins with that one's tokens, else
in a row of its own, in which earlier replies are context.
"""

from __future__ import annotations

import hashlib
import time
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from clawpipe.core.basics.json_types import JsonObject, Row
from clawpipe.core.contracts.sampled import SampledTurn, token_columns, version_of
from clawpipe.core.conversation.endings import ending_of_reason
from clawpipe.core.conversation.messages import Message
from clawpipe.data.capture.chains import chains_of
from clawpipe.data.capture.order import in_written_order
from clawpipe.data.capture.records import DamagedError, Feedback, Record, Turn, read_line
from clawpipe.data.capture.sessions import Key, Reply, Session, sessions_of
from clawpipe.data.capture.settings import IDLE_SECONDS
from clawpipe.data.capture.untaught import BY_CONSTRAINT, BY_CONTENT, CONSTRAINED, NO_TEXT, Fault, fault_of
from clawpipe.data.importers.message import ReadMessages, read_message, read_messages
from clawpipe.data.importers.record import (
    Conversation,
    Judgement,
    Kind,
    Origin,
    Preference,
    Status,
    counted,
    first_request,
    prompt_hash,
)
from clawpipe.data.importers.sources.lines import Line, Place
from clawpipe.data.importers.strict_json import RefusedError
from clawpipe.data.importers.toolcalls import tools_on_offer
from clawpipe.data.importers.untaught import CUT_SHORT, HELD, silenced
from clawpipe.data.importers.untaught import NO_TEXT as OTHER_PARTS
from clawpipe.data.wire.draw import changes_the_draw

FORMAT = "capture"
UNPAIRED = "corrections of such turns"
_BY_FAULT = (BY_CONTENT, BY_CONSTRAINT)  # sources of the type of a turn that the gateway itself has made a side turn
_SHOWN: dict[Fault, str] = {
    NO_TEXT: OTHER_PARTS,
    CONSTRAINED: HELD,
}  # what faults are counted as; others as turns that were cut short
PARENT = "parent_session_id"  # in `extra`, where forgetting a session finds those that it started


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


def conversation_of(session: Session, chain: Sequence[Reply], line: Line) -> Conversation:
    """Return the conversation of a chain, as a row of trajectories: what the gateway knows of each turn has columns of its own.

    Raises:
        RefusedError: a message cannot be read, or there is no user message.
    """
    last = chain[-1]
    request = last.turn.record.request
    read = read_messages([*_messages(request), last.answer.message, *last.next_state])
    origin = Origin(FORMAT, line.file, line.number)
    replies = {_reply_index(reply): reply for reply in chain}
    tools = tools_on_offer(request.get("tools"))
    prompt = _question(session, read.messages)
    row = _row(session, chain, prompt) | {"messages": read.messages, "origin": _origin_row(origin)}
    row |= _tokens(chain) or {"kinds": _kinds(read.messages, replies)}
    extra = _extra(session, replies, read)
    return Conversation(
        read.messages,
        _kinds(read.messages, replies),
        prompt,
        session=session.name,
        user=last.turn.record.user,
        model=last.turn.record.model,
        judgements=tuple(_judgements(replies)),
        extra=extra,
        status=row["status"],
        tools=tools,
        origin=origin,
        row=row | counted(read.messages, read.failed),
        failed=read.failed,
        unread=read.unread,
        lines=len(chain),
        context=sum(message.role == "assistant" for message in read.messages) - len(chain),
    )


def taught(conversation: Conversation) -> tuple[Conversation, Counter[str]]:
    """Make turns side turns that teach nothing as text, as `silenced` does; a row with tokens stays as it is."""
    row = conversation.row or {}
    if row.get("tokens") == "recorded":
        return conversation, Counter()
    made, found = silenced(conversation)
    return replace(made, row=dict(row) | {"kinds": made.kinds}), found


def corrections(session: Session, chain: Sequence[Reply], origin: Origin) -> Iterator[Preference]:
    """Yield a pair for each turn that somebody corrected: the correction is chosen, the answer rejected. A turn with a fault gives
    none: its question or its answer is not known whole.

    Raises:
        RefusedError: a message cannot be read.
    """
    for reply in chain:
        if fault_of(reply.turn.record, reply.answer):
            continue
        request = reply.turn.record.request
        for feedback in reply.turn.feedback if reply is reply.turn.chosen else ():
            if feedback.correction:
                yield Preference(
                    read_messages(_messages(request)).messages,
                    (Message("assistant", feedback.correction),),
                    (read_message(reply.answer.message),),
                    tools=tools_on_offer(request.get("tools")),
                    extra={"key": session.key, "feedback": feedback.id, "turn": reply.turn.record.id},
                    origin=origin,
                    session=session.name,
                    user=reply.turn.record.user,
                )


def faults(chain: Sequence[Reply]) -> Counter[str]:
    """Return how many replies of a chain do not teach although their client calls them main turns, by reason."""
    found: Counter[str] = Counter()
    for reply in chain:
        record = reply.turn.record
        if (fault := fault_of(record, reply.answer)) and (record.turn_type == "main" or record.turn_type_from in _BY_FAULT):
            found[_SHOWN.get(fault, CUT_SHORT)] += 1
            found[UNPAIRED] += any(one.correction for one in reply.turn.feedback if reply is reply.turn.chosen)
    return +found


def judgement_of(feedback: Feedback, turn: int) -> Judgement:
    """Return the score of feedback on the reply with the index `turn`."""
    value = feedback.value or 0.0
    return Judgement(value, "user", value > 0, turn, feedback.comment or "", evidence={"feedback": feedback.id})


def _question(session: Session, messages: Sequence[Message]) -> str:
    """Return the words that a session's first reply answers. What stands before them, examples say, others may begin with too.

    Raises:
        RefusedError: there is no user message.
    """
    asked = read_messages(_messages(session.turns[0].record.request)).messages
    begins_so = tuple(messages[: len(asked)]) == tuple(asked)
    return first_request([*reversed(asked)] if begins_so else messages)


def _row(session: Session, chain: Sequence[Reply], prompt: str) -> Row:
    last = chain[-1].turn.record
    item, policy = prompt_hash(prompt)[:16], _policy(last, chain[-1].answer.token_ids is not None)
    status = _status(chain[-1])
    names = [f"{session.key}/{session.name}", *(f"{reply.turn.record.id}/{reply.index}" for reply in chain)]
    seed = last.request.get("seed")
    return {
        "trajectory_id": hashlib.sha256("\n".join(names).encode()).hexdigest()[:32],
        "item_id": item,
        "group_id": f"{item}/{policy or ''}",
        "rollout_index": 0,
        "environment": "imported",
        "split": "train",
        "source": "captured",
        "policy_version": policy,
        "seed": seed if type(seed) is int and abs(seed) < 2**63 else 0,
        "finish_reason": "length" if status == "truncated" else "stop",
        "session_id": session.name,
        "user_id": last.user,
        "model": last.model,
        "status": status,
        "tokens": "none",
        "token_ids": (),
        "loss_mask": (),
        "logprobs": (),
        "turns": (),
        "prompt_tokens": 0,
        "temperature": 0.0,
    }


def _tokens(chain: Sequence[Reply]) -> Row | None:
    """Return the columns of recorded tokens; None if there are none. The last prompt holds all tokens of the turns before it."""
    first, turns = chain[0].turn.record, [_sampled(reply) for reply in chain]
    if not all(turn.prompt and turn.ids and turn.logprobs for turn in turns):
        return None
    known = first.temperature is not None
    changed = any(changes_the_draw(reply.turn.record.request) for reply in chain)  # older gateways did not look at each setting
    return {
        "tokens": "recorded",
        "renderer_digest": f"captured/{FORMAT}",
        **token_columns(turns),
        "temperature": first.temperature if known else 1.0,
        "logprobs_kind": first.logprobs_kind if known and not changed else "none",
    }


def _sampled(reply: Reply) -> SampledTurn:
    prompt, answer = reply.turn.record.prompt_token_ids or (), reply.answer
    return SampledTurn(prompt, answer.token_ids or (), answer.logprobs or (), _finish(reply), _kind(reply))


def _kinds(messages: Sequence[Message], replies: Mapping[int, Reply]) -> tuple[Kind, ...]:
    count = sum(message.role == "assistant" for message in messages)
    whole = {index for index, reply in replies.items() if index == count - 1 or _finish(reply) == "stop"}
    return tuple(_kind(replies[index]) if index in whole else "side" for index in range(count))


def _kind(reply: Reply) -> Kind:
    """Return main for a turn that may teach: a main turn without a fault."""
    return "main" if reply.turn.record.turn_type == "main" and not fault_of(reply.turn.record, reply.answer) else "side"


def _finish(reply: Reply) -> str:
    return "length" if ending_of_reason(reply.answer.finish_reason or "") == "truncated" else "stop"


def _status(reply: Reply) -> Status:
    if reply.turn.record.ending != "complete":
        return "aborted"
    return ending_of_reason(reply.answer.finish_reason or "") or "aborted"


def _policy(turn: Turn, has_tokens: bool) -> str | None:
    """Return the policy version that the engine named; else for tokens the model's name."""
    return version_of(turn.policy_version, turn.model) if has_tokens or turn.policy_version else None


def _extra(session: Session, replies: Mapping[int, Reply], read: ReadMessages) -> JsonObject:
    turns = [
        {
            "turn": reply.turn.number,
            "reply": index,
            "id": reply.turn.record.id,
            "response_id": reply.turn.record.response_id,
            "relation": reply.turn.relation,
            **({"no_tokens": reply.turn.record.no_tokens} if reply.turn.record.no_tokens else {}),
            **({"fault": fault} if (fault := fault_of(reply.turn.record, reply.answer)) else {}),
        }
        for index, reply in replies.items()
    ]
    extra: JsonObject = {"key": session.key, "turns": turns}
    extra |= {PARENT: session.parent} if session.parent else {}
    return extra | ({"messages": list(read.unknown)} if read.unknown else {})


def _judgements(replies: Mapping[int, Reply]) -> Iterator[Judgement]:
    for index, reply in replies.items():
        if reply is reply.turn.chosen:
            yield from (judgement_of(one, index) for one in reply.turn.feedback if one.value is not None)


def _reply_index(reply: Reply) -> int:
    """Return the index of a reply among the assistant messages of its conversation."""
    history = read_messages(_messages(reply.turn.record.request)).messages
    return sum(message.role == "assistant" for message in history)


def _messages(request: JsonObject) -> list[Any]:
    given = request.get("messages")
    if not isinstance(given, list):
        raise RefusedError("messages: missing")
    return given


def _origin_row(origin: Origin) -> Row:
    return {"format": origin.format, "file": origin.file, "line": origin.line}
