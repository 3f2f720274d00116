"""Rows of `trajectories` of an episode: one for each chain of turns, as captured sessions become rows."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from clawpipe.core.basics.json_types import JsonObject, Row
from clawpipe.core.contracts.sampled import EPISODE, FAILED, PART, failed_with
from clawpipe.data.capture.chains import chains_of
from clawpipe.data.capture.records import Turn
from clawpipe.data.capture.sessions import Reply, Session, sessions_of
from clawpipe.data.importers.formats.captured_rows import conversation_of
from clawpipe.data.importers.sources.lines import Line
from clawpipe.play.environments.agent import REPLY
from clawpipe.play.environments.base import Verdict
from clawpipe.play.environments.ending import Ending
from clawpipe.play.workers.episodes import TEXT
from clawpipe.serve.programs.episode import Episode, Sampled
from clawpipe.serve.programs.run import Ran, reason_of

_NOWHERE = Line("", 0, 0, b"")


@dataclass(frozen=True)
class Kept:
    """What the rows of a shard share.

    Attributes:
        renderer: that made the tokens of prompts.
        engine: what sampled, where it is not the embedded engine.
    """

    by: Sampled
    renderer: str
    temperature: float
    engine: JsonObject | None = None


def rows_of(episode: Episode, ran: Ran, kept: Kept) -> Iterator[Row]:
    """Yield an episode's rows. The first, with the most sampled tokens, stands for the whole; all have its end and its verdict."""
    chains = [(session, chain) for session in sessions_of(_ordered(episode.turns)).values() for chain in chains_of(session)]
    chains.sort(key=lambda one: -_sampled(one[1]))  # stable: of equal ones the first
    ending = ending_of(episode, ran, len(chains) > 1)
    if not chains:
        yield _row(episode, ending, kept, 0, {**TEXT, "messages": [one.as_dict() for one in episode.item.messages]})
    for part, (session, chain) in enumerate(chains):
        of_several = {EPISODE: _id(episode, kept, 0)} | ({PART: part} if part else {}) if len(chains) > 1 else {}
        yield _row(episode, ending, kept, part, _columns(session, chain, kept), of_several)


def ending_of(episode: Episode, ran: Ran, has_several: bool = False) -> Ending:
    """Return how an episode ended, which may have left several rows.

    One in which nothing was sampled, and one whose program exceeded its sandbox, says nothing of the policy: it has an error.
    """
    if ran.error:
        return Ending(ran.reason, None, ran.error)
    result, unanswered = ran.result, episode.asked - len(episode.turns)
    evidence: JsonObject = {"exit": result.code, "turns": len(episode.turns), "unanswered": unanswered}
    evidence |= ({"check": ran.check} if ran.check else {}) | ({REPLY: episode.last_reply} if has_several else {})
    if result.ended not in (None, "timeout"):
        return Ending("error", None, f"its program was ended: it exceeded the limit `{result.ended}` of its sandbox")
    reason = reason_of(result, episode)
    if not episode.turns:
        how = "took too long" if result.ended else f"ended with exit code {result.code}"
        why = "it still waited for an answer" if unanswered else _said(episode, ran)
        return Ending(reason if result.ended else "error", None, f"its program {how} before it was answered: {why}")
    fails = result.code and not result.ended and not episode.was_told_over
    return Ending(reason, Verdict(evidence | ({FAILED: True} if fails else {})))


def failure_of(episode: Episode, ran: Ran, row: Row) -> str:
    """Return a line about a program that failed by itself after it was answered; "" if it did not."""
    code = failed_with(row)
    return f"{row['trajectory_id']}: its program ended with exit code {code}: {_said(episode, ran)}" if code else ""


def _said(episode: Episode, ran: Ran) -> str:
    return f"its last request was refused with {episode.refusal}" if episode.refusal else ran.said_last


def _ordered(turns: Sequence[Turn]) -> list[Turn]:
    """Return turns in an order that depends on what was asked alone, and not on which of several requests arrived first."""
    return sorted(turns, key=lambda turn: (turn.session, len(turn.prompt_token_ids or ()), turn.prompt_token_ids or (), turn.id))


def _sampled(chain: Sequence[Reply]) -> int:
    return sum(len(reply.answer.token_ids or ()) for reply in chain if reply.turn.record.turn_type == "main")


def _columns(session: Session, chain: Sequence[Reply], kept: Kept) -> Row:
    conversation = conversation_of(session, chain, _NOWHERE)
    row: Row = dict(conversation.row or {})
    own = {name: row[name] for name in TEXT} | {"renderer_digest": kept.renderer, "finish_reason": row["finish_reason"]}
    return own | {"messages": [one.as_dict() for one in conversation.messages], "tools": conversation.tools}


def _group(episode: Episode, kept: Kept) -> str:
    return f"{episode.item.item_id}/{kept.by.policy_version}"


def _id(episode: Episode, kept: Kept, part: int) -> str:
    return hashlib.sha256(f"{_group(episode, kept)}/{episode.index}/{episode.seed}/{part}".encode()).hexdigest()[:24]


def _row(episode: Episode, ending: Ending, kept: Kept, part: int, columns: Row, of_several: JsonObject | None = None) -> Row:
    extra = ({"engine": kept.engine} if kept.engine else {}) | (of_several or {})
    return {
        "trajectory_id": _id(episode, kept, part),
        "item_id": episode.item.item_id,
        "group_id": _group(episode, kept),
        "rollout_index": episode.index,
        "environment": episode.item.environment,
        "split": episode.item.split,
        "source": "rollout",
        "policy_version": kept.by.policy_version,
        "temperature": kept.temperature,
        "seed": episode.seed,
        "finish_reason": "stop",
        "extra": json.dumps(extra, sort_keys=True) if extra else None,
        **columns,
        **ending.as_row(),
    }
