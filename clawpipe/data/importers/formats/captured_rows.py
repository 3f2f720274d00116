"""Make rows of the conversations that the gateway captured, with the tokens that were sampled and what people said of them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from clawpipe.core.basics.json_types import JsonObject, Row
from clawpipe.core.contracts.sampled import SampledTurn, token_columns, version_of
from clawpipe.core.conversation.endings import ending_of_reason
from clawpipe.core.conversation.messages import Message
from clawpipe.data.capture.records import Feedback, Turn
from clawpipe.data.capture.sessions import Reply, Session
from clawpipe.data.capture.untaught import fault_of
from clawpipe.data.importers.formats.capture import FORMAT
from clawpipe.data.importers.message import ReadMessages, read_messages
from clawpipe.data.importers.record import (
    Conversation,
    Judgement,
    Kind,
    Origin,
    Status,
    counted,
    first_request,
    prompt_hash,
)
from clawpipe.data.importers.sources.lines import Line
from clawpipe.data.importers.strict_json import RefusedError
from clawpipe.data.importers.toolcalls import tools_on_offer
from clawpipe.data.wire.draw import changes_the_draw

PARENT = "parent_session_id"  # in `extra`, where forgetting a session finds those that it started


def conversation_of(session: Session, chain: Sequence[Reply], line: Line) -> Conversation:
    """Return the conversation of a chain, as a row of trajectories: what the gateway knows of each turn has columns of its own.

    Raises:
        RefusedError: a message cannot be read, or there is no user message.
    """
    last = chain[-1]
    request = last.turn.record.request
    read = read_messages([*messages_of_request(request), last.answer.message, *last.next_state])
    origin = Origin(FORMAT, line.file, line.number)
    replies = {_reply_index(reply): reply for reply in chain}
    tools = tools_on_offer(request.get("tools"))
    prompt = _question(session, read.messages)
    row: Row = _row(session, chain, prompt) | {"messages": read.messages, "origin": _origin_row(origin)}
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


def judgement_of(feedback: Feedback, turn: int) -> Judgement:
    """Return the score of feedback on the reply with the index `turn`."""
    value = feedback.value or 0.0
    return Judgement(value, "user", value > 0, turn, feedback.comment or "", evidence={"feedback": feedback.id})


def _question(session: Session, messages: Sequence[Message]) -> str:
    """Return the words that a session's first reply answers. What stands before them, examples say, others may begin with too.

    Raises:
        RefusedError: there is no user message.
    """
    asked = read_messages(messages_of_request(session.turns[0].record.request)).messages
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
    history = read_messages(messages_of_request(reply.turn.record.request)).messages
    return sum(message.role == "assistant" for message in history)


def messages_of_request(request: JsonObject) -> list[Any]:
    """Return the messages of a captured request.

    Raises:
        RefusedError: it has none.
    """
    given = request.get("messages")
    if not isinstance(given, list):
        raise RefusedError("messages: missing")
    return given


def _origin_row(origin: Origin) -> Row:
    return {"format": origin.format, "file": origin.file, "line": origin.line}
