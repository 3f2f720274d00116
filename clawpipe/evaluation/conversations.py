"""Hold out stored conversations and preference pairs, and draw those that a night's verdict rests on.

The side of a row depends on nothing but whose it is: its user, or where that is unknown its session, or its prompt. So the side is
the same on every night, and all rows of a user are on one side.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from clawpipe.config.night import CONVERSATIONS, Measure
from clawpipe.contracts.odcs import newest_version
from clawpipe.contracts.schema import conformed, schema_of
from clawpipe.contracts.validate import validate
from clawpipe.environments.base import TaskItem
from clawpipe.environments.split import heldout
from clawpipe.errors import DataError
from clawpipe.evaluation.draw import draw, publish_items
from clawpipe.evaluation.ledger import freshness
from clawpipe.evaluation.turns import TOKENS, Turn, call_turn, reply_turn, scored_tokens
from clawpipe.json_types import JsonObject, Row
from clawpipe.messages import Message
from clawpipe.policy.spec import policy_spec
from clawpipe.policy.vocabulary import load_tokenizer
from clawpipe.store.artifacts import Store
from clawpipe.store.datasets import dataset_files, publish_dataset, read_dataset
from clawpipe.store.digests import sha256_bytes
from clawpipe.store.parts import rechunk
from clawpipe.store.refs import DatasetRef, ModelRef, StepResult
from clawpipe.training.data.text_pairs import TextPair, text_pair
from clawpipe.training.data.text_rows import renderers

HELD_OUT = "held out"
_NO_CALL = "no tool call"
_WHOSE = ["user_id", "session_id", "item_id"]
_TURN_OF: Mapping[str, Callable[[Row], Turn | None]] = {"tool calls": call_turn, "judged": reply_turn}
_NEAREST = ("verifier", "user", "custom", "judge")  # to what was done, as in curation's 10_join.sql
_CONVERSATION = ["trajectory_id", *_WHOSE, *TOKENS, "messages", "kinds", "tools"]


def identity_of(row: Row) -> str:
    """Return what decides the side of a row: its user, else its session, else its prompt. It names nobody: a ledger keeps it."""
    for name in ("user", "session"):
        if row.get(f"{name}_id"):
            return f"{name}/{sha256_bytes(row[f'{name}_id'].encode())[:16]}"
    return f"prompt/{row['item_id']}"


def identities(file: Path) -> list[str]:
    """Return the identity of each row of a file of trajectories or preference pairs."""
    present = set(pq.read_schema(file).names)
    rows = pq.read_table(file, columns=[name for name in _WHOSE if name in present]).to_pylist()
    return [identity_of(row) for row in rows]


def hold_out(store: Store, rows: DatasetRef, share: float) -> StepResult:
    """Split stored trajectories or preference pairs into rows to train on and rows that no night trains on.

    Returns:
        output: the rows to train on, in order. extras: "heldout", the others; "quarantine", if a row breaks the contract.

    Raises:
        DataError: the dataset is missing or damaged, or has another layout.
    """
    checked = validate(store, rows, rows.name)
    files, schema = dataset_files(store, checked.dataset), schema_of(rows.name)
    sides = [[heldout(identity, share, salt=CONVERSATIONS) for identity in identities(file)] for file in files]
    parts = (rechunk(_rows(files, sides, side, schema), schema) for side in (False, True))
    version, parents = newest_version(rows.name), [checked.dataset.digest]
    kept, apart = (publish_dataset(store, rows.name, part, schema_version=version, parents=parents) for part in parts)
    return StepResult(
        output=kept,
        extras={**checked.extras, "heldout": apart},
        rows_in=rows.rows,
        rows_out=kept.rows,
        filtered=checked.filtered | {HELD_OUT: apart.rows},
    )


def draw_conversations(
    store: Store,
    conversations: Sequence[DatasetRef],
    scores: Sequence[DatasetRef],
    imitate: str,
    max_tokens: int,
    count: int,
    seen: Mapping[str, int],
    measure: Measure = "likelihood",
) -> StepResult:
    """Draw up to `count` held-out conversations with good replies, from the identities with the fewest looks.

    Args:
        conversations: held-out trajectories, rendered where they are text.
        scores: which replies are good; a conversation that nobody judged is, unless `imitate` is "success".
        imitate: the setting of curation.
        max_tokens: longer conversations are not scored.
        seen: for each identity the number of nights that have looked at it.
        measure: "tool calls" takes only conversations with a call to make anew, and "judged" those with a turn to answer anew,
            whether it was good or not.

    Returns:
        output: `task_items`; extras: "conversations", the drawn rows, and "all", which is the output; details: see `draw_heldout`.

    Raises:
        DataError: there is none.
    """
    tables = [_conversations(store, ref) for ref in conversations]
    judged = {} if measure == "judged" else _successes(store, scores)
    rows = [row for table in tables for row in table.select(_CONVERSATION).to_pylist()]
    wanted, turn_of = "any" if measure == "judged" else imitate, _TURN_OF.get(measure)
    faults = [_fault(row, judged.get(row["trajectory_id"]), wanted, max_tokens, turn_of) for row in rows]
    good = [row for row, fault in zip(rows, faults, strict=True) if not fault]
    pool = [_item(row["trajectory_id"], row, row["messages"], number) for number, row in enumerate(good)]
    if _NO_CALL in faults and not pool:
        what = f"no held-out conversation has a tool call to make anew, of {len(rows)}"
        fix = "false compares the likelihood of replies, which only holds; evaluation.judge compares answers"
        raise DataError(what, "evaluation.replay_calls", fix)
    drawn = _drawn(pool, count, seen)
    chosen = pa.array([item.item_id for item in drawn], pa.string())
    shown = (table.filter(pc.is_in(table["trajectory_id"], chosen)) for table in tables)  # pyright: ignore[reportAttributeAccessIssue]  # made at run time
    parents = [ref.digest for ref in (*conversations, *scores)]
    kept = publish_dataset(store, "trajectories", [pa.concat_tables(shown)], parents=parents)
    owners = {row["trajectory_id"]: _owner(row) for row in good}
    return _drawn_result(store, drawn, owners, kept, pool, seen, Counter(filter(None, faults)))


def draw_pairs(
    store: Store, pairs: Sequence[DatasetRef], policy: ModelRef, max_tokens: int, count: int, seen: Mapping[str, int]
) -> StepResult:
    """Draw up to `count` held-out preference pairs, from the identities with the fewest looks; see `draw_conversations`.

    Args:
        policy: renders the pairs that are text; in the drawn rows every side has token ids.

    Raises:
        DataError: there is none.
    """
    table = pa.concat_tables([conformed(read_dataset(store, ref), schema_of("preference_pairs")) for ref in pairs])
    render = _renderer(store, policy)
    rows = {row["pair_id"]: row for row in table.to_pylist()}
    faults = {name: _fault_of_pair(row, render, max_tokens) for name, row in rows.items()}  # fills the sides in, too
    good = [row for name, row in rows.items() if not faults[name]]
    pool = [_item(row["pair_id"], row, row["prompt"] or (), number) for number, row in enumerate(good)]
    drawn = _drawn(pool, count, seen)
    shown = pa.Table.from_pylist([rows[item.item_id] for item in drawn], schema=table.schema)
    version, parents = pairs[0].schema_version, [*(ref.digest for ref in pairs), policy.digest]
    kept = publish_dataset(store, "preference_pairs", [shown], schema_version=version, parents=parents)
    owners = {row["pair_id"]: _owner(row) for row in good}
    return _drawn_result(store, drawn, owners, kept, pool, seen, Counter(filter(None, faults.values())))


def _rows(files: Sequence[Path], sides: Sequence[Sequence[bool]], wanted: bool, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    for file, of_file in zip(files, sides, strict=True):
        mask = pa.array([side == wanted for side in of_file], pa.bool_())
        yield from conformed(pq.read_table(file), schema).filter(mask).combine_chunks().to_batches()


def _conversations(store: Store, ref: DatasetRef) -> pa.Table:
    return conformed(read_dataset(store, ref), schema_of("trajectories"))


def _successes(store: Store, scores: Sequence[DatasetRef]) -> dict[str, bool]:
    """Return for each judged trajectory whether those nearest to it say success, all of them: verifiers, users, others, judges."""
    judged: dict[str, tuple[int, bool]] = {}
    for ref in scores:
        for row in read_dataset(store, ref, ["trajectory_id", "turn", "origin", "success"]).to_pylist():
            if row["turn"] is None and row["success"] is not None:
                judgement = (_NEAREST.index(row["origin"]), not row["success"])
                before = judged.get(row["trajectory_id"], judgement)
                judged[row["trajectory_id"]] = min(judgement, before, key=lambda one: (one[0], not one[1]))
    return {name: not failed for name, (_, failed) in judged.items()}


def _fault(row: Row, success: bool | None, imitate: str, max_tokens: int, turn_of: Callable[[Row], Turn | None] | None) -> str:
    """Return why a conversation is no evidence of good replies; "" if it is."""
    if success is False or (imitate == "success" and success is None):
        return "no success"
    _, mask = scored_tokens(row)
    if not mask or mask[0] or not any(mask):
        return "no turn to score"
    if len(mask) > max_tokens:
        return "too long"
    if turn_of is None or turn_of(row):
        return ""
    return _NO_CALL if turn_of is call_turn else "no turn to answer"


def _renderer(store: Store, policy: ModelRef) -> Callable[[Row], TextPair | str]:
    spec = policy_spec(store, policy)
    renderer_of = renderers(load_tokenizer(Path(spec.base)), spec.calls, ())
    return lambda row: text_pair(row, renderer_of, ())


def _fault_of_pair(row: Row, render: Callable[[Row], TextPair | str], max_tokens: int) -> str:
    """Return why a pair cannot be scored; "" if it can. The sides of a pair that is text get token ids and masks."""
    if row["tokens"] != "recorded":
        rendered = render(row)
        if isinstance(rendered, str):
            return rendered.replace("_", " ")
        prompt, sides = rendered["prompt_ids"], {"chosen": rendered["chosen_ids"], "rejected": rendered["rejected_ids"]}
        for side, ids in sides.items():
            row[f"{side}_token_ids"], row[f"{side}_loss_mask"] = prompt + ids, [False] * len(prompt) + [True] * len(ids)
    masks = (row["chosen_loss_mask"], row["rejected_loss_mask"])
    if any(not any(mask) or mask[0] for mask in masks):
        return "no turn to score"
    return "too long" if max(map(len, masks)) > max_tokens else ""


def _item(name: str, row: Row, messages: Iterable[Row], ordinal: int) -> TaskItem:
    """Return the item of a row: what was said before the first reply."""
    opening = []
    for message in messages:
        if message["role"] == "assistant":
            break
        opening.append(Message.from_dict(message))
    return TaskItem(name, identity_of(row), CONVERSATIONS, "chat", "heldout", "all", tuple(opening), "{}", ordinal)


def _owner(row: Row) -> Row:
    return {name: row[name] for name in ("session_id", "user_id")}


def _drawn(pool: Sequence[TaskItem], count: int, seen: Mapping[str, int]) -> list[TaskItem]:
    if not pool:
        what = "no held-out conversation to compare the models on"
        raise DataError(what, "evaluation.heldout_share", "hold out a larger share, or ingest more conversations")
    return draw(pool, min(count, len(pool)), seen)


def _drawn_result(
    store: Store,
    drawn: Sequence[TaskItem],
    owners: Mapping[str, Row],
    kept: DatasetRef,
    pool: Sequence[TaskItem],
    seen: Mapping[str, int],
    faults: Counter[str],
) -> StepResult:
    output = publish_items(store, drawn, owners)
    undrawn = {"not drawn": len(pool) - len(drawn)} if len(pool) > len(drawn) else {}
    details: JsonObject = freshness((item.identity for item in drawn), seen).model_dump()
    return StepResult(
        output=output,
        extras={"all": output, "conversations": kept},
        rows_in=len(pool) + faults.total(),
        rows_out=output.rows,
        filtered=dict(sorted(faults.items())) | undrawn,
        details=details | {"available": len({item.identity for item in pool})},
    )
