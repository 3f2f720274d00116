"""Rows with the answers that people wrote in place of a model's.

An edited row gives a row of its own: the conversation up to the answer, and the person's answer, which is the only turn to learn
from. It is text only, since nobody drew it: no log-prob of the old answer stands beside it. And it gives a preference pair, in
which the person's answer is chosen and the model's rejected.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from clawpipe.core.basics.json_types import Row
from clawpipe.core.contracts.odcs import newest_version
from clawpipe.core.contracts.schema import conformed, schema_of
from clawpipe.core.contracts.text import EDITED, text_only
from clawpipe.core.store.artifacts import Store
from clawpipe.core.store.datasets import dataset_files, publish_dataset, read_dataset
from clawpipe.core.store.digests import sha256_bytes, sha256_json
from clawpipe.core.store.refs import DatasetRef, Ref, StepResult
from clawpipe.play.judging.exchanges import main_turns
from clawpipe.record.reviews.table import NAME, published

SCORER = "review"
WRITTEN = "written"  # the verdict on a row that holds a person's answer
FORMAT = "review"
_EMPTY = ("rendered_ids", "rendered_mask", "rendered_logprobs", "rendered_policy", "verdict", "error", "turn_rewards", "ended")


def edited_rows(store: Store, trajectories: Sequence[DatasetRef], reviews: DatasetRef) -> StepResult:
    """Make the rows and pairs of the edits of some of these trajectories.

    Returns:
        output: `trajectories`, one for each edit of a row that is there; extras: "scores" (each is a success, by a person),
        "pairs" and "reviews" (verdict "written"). rows_in counts the edits. An edit of a turn that the row no longer has, or that
        calls a tool, is filtered.

    Raises:
        DataError: a dataset is missing or damaged.
    """
    edits = {row["row_id"]: row for row in read_dataset(store, reviews).to_pylist() if row["verdict"] == "edited"}
    found = [(row, edits[row["trajectory_id"]]) for ref in trajectories for row in _rows(store, ref, list(edits))]
    made = [(row, edit, place) for row, edit in found if (place := place_of(row, edit["turn"])) is not None]
    copies = [_copy(row, edit, place) for row, edit, place in made]
    parents = [reviews.digest, *(ref.digest for ref in trajectories)]

    def publish(name: str, rows: Sequence[Row]) -> DatasetRef:
        table = pa.Table.from_pylist(list(rows), schema=schema_of(name))
        return publish_dataset(store, name, [table], schema_version=newest_version(name), parents=parents)

    output = publish("trajectories", copies)
    pairs = [_pair(row, copy, place) for copy, (row, _, place) in zip(copies, made, strict=True)]
    written = [
        {"row_id": name, "verdict": WRITTEN, "by": edit["by"], "at": edit["at"], "reason": edit["reason"]}
        for copy, pair, (_, edit, _) in zip(copies, pairs, made, strict=True)
        for name in (copy["trajectory_id"], pair["pair_id"])
    ]
    extras: dict[str, Ref] = {
        "scores": publish("scores", [_score(copy) for copy in copies]),
        "pairs": publish("preference_pairs", pairs),
        NAME: published(store, written, parents),
    }
    lost = {"the edited turn is not there": len(found) - len(made)} if len(found) > len(made) else {}
    return StepResult(output=output, extras=extras, rows_in=len(found), rows_out=output.rows, filtered=lost)


def place_of(row: Row, turn: int) -> int | None:
    """Return the place of a turn's message that an answer in words can replace; None if there is none."""
    place = dict(main_turns(row)).get(turn)
    return None if place is None or row["messages"][place]["tool_calls"] else place


def _rows(store: Store, ref: DatasetRef, wanted: Sequence[str]) -> Iterator[Row]:
    for file in dataset_files(store, ref):
        table = conformed(pq.read_table(file), schema_of("trajectories"))
        yield from table.filter(pc.is_in(table["trajectory_id"], value_set=pa.array(wanted, pa.string()))).to_pylist()  # pyright: ignore[reportAttributeAccessIssue]  # made at run time


def _copy(row: Row, edit: Row, place: int) -> Row:
    """Return the row that holds a person's answer; what other turns drew is no part of it."""
    name = f"{row['trajectory_id']}{EDITED}{sha256_json([edit['turn'], edit['text']])[:12]}"
    before = sum(message["role"] == "assistant" for message in row["messages"][:place])
    origin = row["origin"] or {"file": row["trajectory_id"], "line": 1}
    changed = {
        "trajectory_id": name,
        "group_id": f"{name}/",
        "rollout_index": 0,
        "source": "imported",
        "policy_version": None,
        "messages": [*row["messages"][:place], _answer(edit["text"])],
        "finish_reason": "stop",
        "status": None,
        "tool_calls": None,
        "tool_errors": None,
        "origin": {**origin, "format": FORMAT},
    }
    return {**row, **dict.fromkeys(_EMPTY), **text_only(["side"] * before + ["main"]), **changed}


def _answer(text: str) -> Row:
    return {"role": "assistant", "content": text, "tool_calls": [], "tool_call_id": None, "name": None}


def _score(copy: Row) -> Row:
    return {
        "trajectory_id": copy["trajectory_id"],
        "turn": None,
        "scorer": SCORER,
        "origin": "user",
        "value": 1.0,
        "success": True,
        "reason": "a person wrote the answer",
        "evidence": "{}",
    }


def _pair(row: Row, copy: Row, place: int) -> Row:
    streams = {f"{side}_{stream}": [] for side in ("chosen", "rejected") for stream in ("token_ids", "loss_mask")}
    shared = {name: copy[name] for name in ("item_id", "group_id", "session_id", "user_id", "tools", "origin", "extra")}
    return {
        **shared,
        **streams,
        "pair_id": sha256_bytes(copy["trajectory_id"].encode())[:32],
        "strategy": "imported",
        "margin": None,
        "chosen_id": copy["trajectory_id"],
        "rejected_id": row["trajectory_id"],
        "prompt_tokens": 0,
        "temperature": 0.0,
        "weight": 1.0,
        "tokens": "none",
        "prompt": row["messages"][:place],
        "chosen": [copy["messages"][-1]],
        "rejected": [row["messages"][place]],
    }
