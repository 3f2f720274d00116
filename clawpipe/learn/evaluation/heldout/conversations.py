"""Draw the held-out conversations that a night's verdict rests on."""

from __future__ import annotations

import json
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import pyarrow as pa

from clawpipe.core.basics.json_types import JsonObject, Row
from clawpipe.core.config.environment import CONVERSATIONS
from clawpipe.core.config.gate import Measure
from clawpipe.core.contracts.schema import conformed, schema_of
from clawpipe.core.conversation.endings import COLUMNS, ending_of, is_cut_short
from clawpipe.core.conversation.messages import Message
from clawpipe.core.store.artifacts import Store
from clawpipe.core.store.datasets import dataset_batches, publish_dataset
from clawpipe.core.store.refs import DatasetRef, StepResult
from clawpipe.data.similarity.words import texts_of
from clawpipe.errors import DataError
from clawpipe.learn.evaluation.heldout.draw import draw, publish_items, supply_of
from clawpipe.learn.evaluation.heldout.holding import WHOSE, Reviews, identity_of
from clawpipe.learn.evaluation.heldout.said import UNJUDGED, Range, SaidOf
from clawpipe.learn.evaluation.heldout.turns import TOKENS, Turn, call_turn, reply_turn, scored_tokens
from clawpipe.learn.evaluation.verdict.verdict import Freshness
from clawpipe.play.environments.base import TaskItem

_TURN_OF: Mapping[str, Callable[[Row], Turn | None]] = {"tool calls": call_turn, "judged": reply_turn}
_NO_CALL = "no tool call"
_ADVICE = "where nobody has judged them, judge them first or set curation.imitate to any; docs/curation.md has the other reasons"
SIGNS = "signs"  # in place of the setting `curation.imitate`
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
    names = {
        name for ref in conversations for batch in dataset_batches(store, ref, ["trajectory_id"]) for name in batch[0].to_pylist()
    }
    said = SaidOf(store, scores, names)
    judged = {} if measure == "judged" else said.successes(imitate == SIGNS)
    wanted, turn_of = "any" if measure == "judged" else imitate, _TURN_OF.get(measure)
    reviewed = Reviews.read(store, reviews, approved_only)
    scored = Range(within, said.scores() if within else {})
    judged = dict.fromkeys(reviewed.approved, True) | judged

    def fault(row: Row) -> str:
        name = row["trajectory_id"]
        return reviewed.fault(name) or scored.fault(name) or _fault(row, judged.get(name), wanted, max_tokens, turn_of)

    pool, places, why = _pool(_rows(store, conversations), fault, one_user)
    if why[_NO_CALL] and not pool:
        what = f"no held-out conversation has a tool call to make anew, of {why.total()}"
        fix = "false compares the likelihood of replies, which only holds; evaluation.judge compares answers"
        raise DataError(what, "evaluation.replay_calls", fix)
    chosen = drawn_from(pool, count, seen, why)
    shown, rows = _drawn_rows(store, conversations, {item.item_id for item in chosen}, {places[item.ordinal] for item in chosen})
    drawn = [item_of(item.item_id, row, row["messages"], item.ordinal, one_user) for item, row in zip(chosen, rows, strict=True)]
    parents = [ref.digest for ref in (*conversations, *scores)]
    kept = publish_dataset(store, "trajectories", [shown], parents=parents)
    owners = {row["trajectory_id"]: owner_of(row) for row in rows}
    return drawn_result(store, drawn, owners, kept, pool, seen, why)


def _tables(store: Store, conversations: Sequence[DatasetRef], columns: list[str] | None = None) -> Iterator[pa.Table]:
    """Yield the rows of the datasets in order, a batch at a time: whole conversations would take gigabytes as Python objects."""
    whole = schema_of("trajectories")
    schema = whole if columns is None else pa.schema([whole.field(name) for name in columns])
    for ref in conversations:
        for batch in dataset_batches(store, ref, columns):
            yield conformed(pa.Table.from_batches([batch]), schema)


def _rows(store: Store, conversations: Sequence[DatasetRef]) -> Iterator[Row]:
    for table in _tables(store, conversations, _CONVERSATION):
        yield from table.to_pylist()


def _pool(rows: Iterable[Row], fault: Callable[[Row], str], one_user: bool) -> tuple[list[TaskItem], array[int], Counter[str]]:
    """Return an item without its words for each row without a fault, with the row's place among all, and counts of the faults."""
    pool, places, why = list[TaskItem](), array("q"), Counter[str]()
    for place, row in enumerate(rows):
        if reason := fault(row):
            why[reason] += 1
        else:
            pool.append(item_of(row["trajectory_id"], row, (), len(pool), one_user))
            places.append(place)
    return pool, places, why


def _drawn_rows(store: Store, conversations: Sequence[DatasetRef], names: set[str], places: set[int]) -> tuple[pa.Table, list[Row]]:
    """Return the conversations with these names, and the rows at these places, in order."""
    shown, rows, before = list[pa.Table](), list[Row](), 0
    for table in _tables(store, conversations):
        found = [place for place, name in enumerate(table["trajectory_id"].to_pylist()) if name in names]
        of_table = table.take(pa.array(found, pa.int64()))
        shown.append(of_table)
        drawn = [place for place, number in enumerate(found) if before + number in places]
        rows += of_table.take(pa.array(drawn, pa.int64())).to_pylist()
        before += table.num_rows
    return pa.concat_tables(shown), rows


def _fault(row: Row, success: bool | None, imitate: str, max_tokens: int, turn_of: Callable[[Row], Turn | None] | None) -> str:
    """Return why a conversation is no evidence of good replies; "" if it is."""
    if is_cut_short(row):
        return f"attempt {ending_of(row)}"
    if success is False:
        return "no success"
    if imitate in ("success", SIGNS) and success is None:
        return UNJUDGED
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
        owners: session_id and user_id of the drawn items, by item id.
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
