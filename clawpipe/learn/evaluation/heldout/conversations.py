"""Draw the held-out conversations that a night's verdict rests on."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from clawpipe.core.basics.json_types import JsonObject, Row
from clawpipe.core.config.environment import CONVERSATIONS
from clawpipe.core.config.gate import Measure
from clawpipe.core.contracts.schema import conformed, schema_of
from clawpipe.core.conversation.endings import COLUMNS, ending_of, is_cut_short
from clawpipe.core.conversation.messages import Message
from clawpipe.core.store.artifacts import Store
from clawpipe.core.store.datasets import publish_dataset, read_dataset
from clawpipe.core.store.refs import DatasetRef, StepResult
from clawpipe.data.similarity.words import texts_of
from clawpipe.errors import DataError
from clawpipe.learn.evaluation.heldout.draw import draw, publish_items, supply_of
from clawpipe.learn.evaluation.heldout.holding import WHOSE, Reviews, identity_of
from clawpipe.learn.evaluation.heldout.turns import TOKENS, Turn, call_turn, reply_turn, scored_tokens
from clawpipe.learn.evaluation.verdict.verdict import Freshness
from clawpipe.play.environments.base import TaskItem

_TURN_OF: Mapping[str, Callable[[Row], Turn | None]] = {"tool calls": call_turn, "judged": reply_turn}
_NO_CALL = "no tool call"
_UNJUDGED = "no verifier score"  # as curation says it
_ADVICE = "where nobody has judged them, judge them first or set curation.imitate to any; docs/curation.md has the other reasons"
_NEAREST = ("verifier", "user", "custom", "judge")  # to what was done, as in curation's 10_join.sql
_OF_TURN = ("user", "custom", "verifier", "judge")  # the same of a turn's scores
SIGNS = "signs"  # in place of the setting `curation.imitate`
_AGAIN = re.compile("(imported/capture/user)/([0-9]+)")  # names of feedback on a captured turn, from the second time on
_SCORE = ["trajectory_id", "turn", "scorer", "origin", "value", "success"]
_CONVERSATION = ["trajectory_id", *WHOSE, *TOKENS, *COLUMNS, "messages", "kinds", "tools"]


def draw_conversations(
    store: Store,
    conversations: Sequence[DatasetRef],
    scores: Sequence[DatasetRef],
    imitate: str,
    max_tokens: int,
    count: int,
    seen: Mapping[str, int],
    measure: Measure = "likelihood",
    one_user: bool = False,
    reviews: DatasetRef | None = None,
    approved_only: bool = False,
    within: Sequence[float | None] = (),
) -> StepResult:
    """Draw up to `count` held-out conversations with good replies, from the identities with the fewest looks.

    Args:
        conversations: held-out trajectories, rendered where they are text.
        scores: which replies are good; a conversation that nobody judged is, unless `imitate` is "success".
        imitate: the setting of curation, or `SIGNS` where labels are learnt: the sign of a number then says what is good.
        max_tokens: longer conversations are not scored.
        seen: for each identity the number of nights that have looked at it.
        measure: "tool calls" takes only conversations with a call to make anew, and "judged" those with a turn to answer anew,
            whether it was good or not.
        one_user: see `identity_of`.
        reviews, approved_only: see `Reviews`; an approved conversation that nobody judged is good.
        within: the least and the greatest score of a conversation with good replies, as `curation.filters` has them; empty: any.

    Returns:
        output: `task_items`; extras: "conversations", the drawn rows, and "all", which is the output; details: see `draw_heldout`.

    Raises:
        DataError: there is none.
    """
    tables = [_conversations(store, ref) for ref in conversations]
    judged = {} if measure == "judged" else _successes(store, scores, imitate == SIGNS)
    rows = [row for table in tables for row in table.select(_CONVERSATION).to_pylist()]
    wanted, turn_of = "any" if measure == "judged" else imitate, _TURN_OF.get(measure)
    reviewed = Reviews.read(store, reviews, approved_only)
    scored = _Range.read(store, scores, within)
    judged = dict.fromkeys(reviewed.approved, True) | judged
    faults = [
        reviewed.fault(row["trajectory_id"])
        or scored.fault(row["trajectory_id"])
        or _fault(row, judged.get(row["trajectory_id"]), wanted, max_tokens, turn_of)
        for row in rows
    ]
    good = [row for row, fault in zip(rows, faults, strict=True) if not fault]
    pool = [item_of(row["trajectory_id"], row, row["messages"], number, one_user) for number, row in enumerate(good)]
    if _NO_CALL in faults and not pool:
        what = f"no held-out conversation has a tool call to make anew, of {len(rows)}"
        fix = "false compares the likelihood of replies, which only holds; evaluation.judge compares answers"
        raise DataError(what, "evaluation.replay_calls", fix)
    why = Counter(filter(None, faults))
    drawn = drawn_from(pool, count, seen, why)
    chosen = pa.array([item.item_id for item in drawn], pa.string())
    shown = (table.filter(pc.is_in(table["trajectory_id"], chosen)) for table in tables)  # pyright: ignore[reportAttributeAccessIssue]  # made at run time
    parents = [ref.digest for ref in (*conversations, *scores)]
    kept = publish_dataset(store, "trajectories", [pa.concat_tables(shown)], parents=parents)
    owners = {row["trajectory_id"]: owner_of(row) for row in good}
    return drawn_result(store, drawn, owners, kept, pool, seen, why)


def _conversations(store: Store, ref: DatasetRef) -> pa.Table:
    return conformed(read_dataset(store, ref), schema_of("trajectories"))


def _successes(store: Store, scores: Sequence[DatasetRef], signs: bool = False) -> dict[str, bool]:
    """Return for each judged trajectory whether its replies are good: by those nearest to it who speak of the whole, all of them
    (verifiers, users, others, judges); where nobody does, by its turns, as in curation: good if one was praised.

    Args:
        signs: whether a number that does not say success speaks by its sign; a judge's does not.
    """
    rows = [row for ref in scores for row in read_dataset(store, ref, _SCORE).to_pylist()]
    judged: dict[str, tuple[int, bool]] = {}
    for row in rows:
        success = _success(row, signs)
        if row["turn"] is None and success is not None:
            judgement = (_NEAREST.index(row["origin"]), not success)
            before = judged.get(row["trajectory_id"], judgement)
            judged[row["trajectory_id"]] = min(judgement, before, key=lambda one: (one[0], not one[1]))
    return _praised(rows) | {name: not failed for name, (_, failed) in judged.items()}


class _Range(NamedTuple):
    """Which scores of the whole a conversation may have. Of several the same one counts as in curation's 10_join.sql."""

    limits: Sequence[float | None]
    scores: Mapping[str, float]

    @classmethod
    def read(cls, store: Store, scores: Sequence[DatasetRef], limits: Sequence[float | None]) -> _Range:
        rows = [row for ref in scores for row in read_dataset(store, ref, _SCORE).to_pylist()] if limits else []
        whole = (row for row in rows if row["turn"] is None)
        ordered = sorted(whole, key=lambda row: (_NEAREST.index(row["origin"]), row["scorer"], row["value"]), reverse=True)
        return cls(limits, {row["trajectory_id"]: row["value"] for row in ordered})

    def fault(self, name: str) -> str:
        """Return why a conversation is no evidence, as curation says it; "" if its score is one that is trained on."""
        if not self.limits:
            return ""
        (least, most), score = self.limits, self.scores.get(name)
        if score is None:
            return _UNJUDGED
        return "score out of range" if (least is not None and score < least) or (most is not None and score > most) else ""


def _success(row: Row, signs: bool) -> bool | None:
    if row["success"] is None and signs and row["origin"] != "judge" and row["value"]:
        return row["value"] > 0
    return row["success"]


def _praised(rows: Sequence[Row]) -> dict[str, bool]:
    """Return for each trajectory with a praised or blamed turn whether one was praised. The sign of a judge's numbers says nothing
    where its score of the whole does not say success."""
    unsigned = {
        (row["trajectory_id"], row["scorer"])
        for row in rows
        if row["turn"] is None and row["success"] is None and row["value"] and row["origin"] == "judge"
    }
    said: dict[tuple[str, int], Row] = {}  # of each turn what counts
    for row in rows:
        if row["turn"] is not None and (row["trajectory_id"], row["scorer"]) not in unsigned:
            turn = (row["trajectory_id"], row["turn"])
            said[turn] = min(said.get(turn, row), row, key=_counts)
    praised: dict[str, bool] = {}
    for (name, _), row in said.items():
        if row["value"]:
            praised[name] = praised.get(name, False) or row["value"] > 0
    return praised


def _counts(row: Row) -> tuple[int, str, int, float]:
    """Order what is said of a turn as curation's 10_join.sql does: the one nearest to a person counts, and of feedback that was
    given again, under numbered names, the last word."""
    found = _AGAIN.fullmatch(row["scorer"])
    name, times = (found[1], int(found[2])) if found else (row["scorer"], 1)
    return _OF_TURN.index(row["origin"]), name, -times, row["value"]


def _fault(row: Row, success: bool | None, imitate: str, max_tokens: int, turn_of: Callable[[Row], Turn | None] | None) -> str:
    """Return why a conversation is no evidence of good replies; "" if it is."""
    if is_cut_short(row):
        return f"attempt {ending_of(row)}"
    if success is False:
        return "no success"
    if imitate in ("success", SIGNS) and success is None:
        return _UNJUDGED
    _, mask = scored_tokens(row)
    if not mask or mask[0] or not any(mask):
        return "no turn to score"
    if len(mask) > max_tokens:
        return "too long"
    if turn_of is None or turn_of(row):
        return ""
    return _NO_CALL if turn_of is call_turn else "no turn to answer"


def item_of(name: str, row: Row, messages: Sequence[Row], ordinal: int, one_user: bool = False) -> TaskItem:
    """Return the item of a row: what was said before the first reply. Its truth is all that was said, up to the last reply: by that
    curation knows copies of conversations that open with a greeting."""
    replies = [place for place, message in enumerate(messages) if message["role"] == "assistant"]
    first, last = (replies[0], replies[-1]) if replies else (len(messages), -1)
    opening = tuple(map(Message.from_dict, messages[:first]))
    truth = json.dumps({"said": _said(messages[: last + 1])}, ensure_ascii=False)
    return TaskItem(name, identity_of(row, one_user), CONVERSATIONS, "chat", "heldout", "all", opening, truth, ordinal)


def _said(messages: Sequence[Row]) -> list[JsonObject]:
    """Return who said what, without system messages and results of tools."""
    spoken = (message for message in messages if message["role"] in ("user", "assistant"))
    return [{"role": message["role"], "text": "\n".join(texts_of(message))} for message in spoken]


def owner_of(row: Row) -> Row:
    """Return whose a row is, as columns of `task_items`."""
    return {name: row[name] for name in ("session_id", "user_id")}


def drawn_from(pool: Sequence[TaskItem], count: int, seen: Mapping[str, int], faults: Mapping[str, int]) -> list[TaskItem]:
    """Draw up to `count` items, from the identities with the fewest looks.

    Args:
        faults: how many held-out rows are not in the pool, by the reason.

    Raises:
        DataError: the pool is empty.
    """
    if not pool:
        what = "no held-out conversation to compare the models on"
        if faults:
            why = ", ".join(f"{number} x {reason}" for reason, number in faults.items())
            raise DataError(f"{what}: of {sum(faults.values())} held out none has good replies ({why})", "curation", _ADVICE)
        raise DataError(what, "evaluation.heldout_share", "hold out a larger share, or ingest more conversations")
    return draw(pool, min(count, len(pool)), seen)


def drawn_result(
    store: Store,
    drawn: Sequence[TaskItem],
    owners: Mapping[str, Row],
    kept: DatasetRef,
    pool: Sequence[TaskItem],
    seen: Mapping[str, int],
    faults: Counter[str],
) -> StepResult:
    """Publish the drawn items, and count what was not drawn.

    Args:
        owners: session_id and user_id of the items in `pool`, by item id.
        kept: the drawn rows.
        pool: what was drawn from.
        seen: for each identity the number of nights that have looked at it.
        faults: how many rows cannot be measured, by reason.
    """
    output = publish_items(store, drawn, owners)
    undrawn = {"not drawn": len(pool) - len(drawn)} if len(pool) > len(drawn) else {}
    details: JsonObject = Freshness.of((item.identity for item in drawn), seen).model_dump()
    return StepResult(
        output=output,
        extras={"all": output, "conversations": kept},
        rows_in=len(pool) + faults.total(),
        rows_out=output.rows,
        filtered=dict(sorted(faults.items())) | undrawn,
        details=details | supply_of(pool, drawn, seen),
    )
