"""Write some rollouts of a round as text: what the policy read and sampled, how the episode ended, and what its scorers say."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from math import fsum
from pathlib import Path

import pyarrow.compute as pc

from clawpipe.core.basics.json_types import Row
from clawpipe.core.basics.words import plain
from clawpipe.core.store.artifacts import Store
from clawpipe.core.store.datasets import dataset_batches, rows_at
from clawpipe.core.store.files import write_atomic
from clawpipe.core.store.refs import DatasetRef
from clawpipe.record.reporting.transcripts import message_lines

Decode = Callable[[Sequence[int]], str]
_SCORE = ["trajectory_id", "turn", "scorer", "value", "success", "reason"]


def write_rollout_log(
    store: Store, file: Path, rollouts: DatasetRef, scores: Sequence[DatasetRef], decode: Decode, count: int
) -> int:
    """Write at most `count` rollouts, spread evenly over the round, into a new file; return how many.

    Args:
        rollouts: all of the round, also those that are set aside later.
        scores: of its trajectories, and maybe of others.
        decode: text of token ids, special tokens included.
    """
    shown = min(count, rollouts.rows)
    rows = list(rows_at(store, rollouts, [place * rollouts.rows // shown for place in range(shown)]))
    said = _scores(store, scores, [row["trajectory_id"] for row in rows])
    lines = [f"{len(rows)} of {rollouts.rows} rollouts"]
    for row in rows:
        lines += ["", *_rollout(row, said.get(row["trajectory_id"], []), decode)]
    file.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(file, "".join(f"{plain(line)}\n" for line in lines).encode())
    return len(rows)


def _scores(store: Store, scores: Sequence[DatasetRef], ids: Sequence[str]) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = {}
    for dataset in scores:
        for batch in dataset_batches(store, dataset, _SCORE):
            for score in batch.filter(pc.field("trajectory_id").isin(ids)).to_pylist():
                found.setdefault(score["trajectory_id"], []).append(score)
    return found


def _rollout(row: Row, scores: Sequence[Row], decode: Decode) -> Iterator[str]:
    yield f"==== item {row['item_id']}, rollout {row['rollout_index']} of its group, policy {row['policy_version'] or 'unknown'}"
    yield from _read_and_sampled(row, decode) if row["token_ids"] else _said(row)
    yield "---- ended: " + ", ".join(str(said) for said in (row["finish_reason"], row["status"], row["error"]) if said)
    for score in scores:
        yield "---- score " + _score(score)


def _read_and_sampled(row: Row, decode: Decode) -> Iterator[str]:
    """Yield the tokens that the policy read and those that it sampled, in turn."""
    start = 0
    for sampled, run in groupby(row["loss_mask"]):
        end = start + len(list(run))
        what = f"sampled at {row['temperature']}, mean log-prob {_mean(row['logprobs'][start:end]):.3f}" if sampled else "read"
        yield f"---- {what}, {end - start} tokens"
        yield from decode(row["token_ids"][start:end]).split("\n")
        start = end


def _said(row: Row) -> Iterator[str]:
    for role, text in message_lines(row["messages"]):
        yield f"---- {role}"
        yield from text.split("\n")


def _score(score: Row) -> str:
    value = "none" if score["value"] is None else f"{score['value']:g}"
    turn = "" if score["turn"] is None else f" of turn {score['turn']}"
    success = "" if score["success"] is None else f", success {json.dumps(score['success'])}"
    return f"{score['scorer']}{turn}: {value}{success}" + (f": {score['reason']}" if score["reason"] else "")


def _mean(values: Sequence[float]) -> float:
    return fsum(values) / len(values)
