"""The step in which several scorers score a dataset."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.core.contracts.schema import schema_of
from clawpipe.core.store.artifacts import Store
from clawpipe.core.store.datasets import dataset_files, publish_dataset
from clawpipe.core.store.parts import rechunk
from clawpipe.core.store.refs import DatasetRef, StepResult
from clawpipe.core.user_code.user_errors import UserErrors
from clawpipe.errors import BusyError, ConfigError
from clawpipe.play.environments.item_rows import ItemRows
from clawpipe.play.judging.base import ROLLOUT, Concludes, Prepares, Row, Score, Scorer, scores_stored
from clawpipe.play.judging.gaming import GamingSigns
from clawpipe.play.judging.tally import Tally

Completed = Callable[[list[JsonObject]], list[JsonObject]]  # score rows of one trajectory
# Scorers read messages; the token streams are most of a trajectory's bytes.
_STREAMS = ("token_ids", "loss_mask", "logprobs")
_BATCH = 256
_NO_ITEM: Row = {}
_NO_WEIGHTS: Mapping[str, float] = {}


def score_dataset(
    store: Store,
    trajectories: DatasetRef,
    items: DatasetRef,
    scorers: Sequence[Scorer],
    log: Path | None = None,
    weights: Mapping[str, float] = _NO_WEIGHTS,
    completed: Completed | None = None,
    verifier_weight: float = 1.0,
) -> StepResult:
    """Let every scorer score every trajectory; scores are in the trajectories' order, then by scorer name.

    Stored trajectories are scored by those scorers alone that need no item; the scores that came with them stand beside.
    A trajectory is rejected, with all its scores, if a scorer raises; a rollout also if its item is unknown, or nobody scores it.

    Args:
        log: file for the exceptions of scorers: message, traceback, row.
        weights: by scorer name; a verifier's score of a trajectory, which is its reward, gains each of these scorers' own times its
            weight, and keeps the parts as evidence.
        verifier_weight: of the verifier's own value in its score of a trajectory; at 0 the reward is what the others say.
        completed: what is stored of a trajectory instead of the rows that these scorers made, given these.

    Returns:
        output: `scores`; extras: "quarantine", if a trajectory was rejected; rows_in, rows_out and filtered count
        trajectories, details["scores"] counts scores, details["raised"] says what was raised, if anything,
        details["warnings"] which signs there are of a judge that is gamed, details["reward"] the mean reward of rollouts, and
        details["judges"] what each judge said of how many turns.

    Raises:
        ConfigError: two scorers share a name, or a scorer is set up wrongly.
        DataError: a dataset is missing or damaged.
        BusyError: a scorer's service is away; the rows are not at fault.
    """
    ordered = sorted(scorers, key=lambda scorer: scorer.name)
    if len({scorer.name for scorer in ordered}) < len(ordered):
        raise ConfigError(f"scorers need different names: {', '.join(scorer.name for scorer in ordered)}")
    known = ItemRows(store, items)
    rejected: list[JsonObject] = []
    raised = UserErrors(log)
    judges = [scorer for scorer in ordered if scorer.origin == "judge"]
    signs = GamingSigns([getattr(getattr(judge, "options", None), "rubric", "") for judge in judges])
    tally = Tally([scorer.name for scorer in judges], [scorer.name for scorer in judges if getattr(scorer, "by_groups", False)])
    weigh = partial(_with_reward, weights=weights, verifier_weight=verifier_weight)
    batches = _score_batches(store, trajectories, known, ordered, weigh, completed, rejected, raised, signs, tally)
    parents = [trajectories.digest, items.digest]
    output = publish_dataset(store, "scores", rechunk(batches, schema_of("scores")), parents=parents)
    details = raised.details() | signs.details() | tally.details()
    return _result(store, trajectories, output, rejected, parents, details)


def _score_batches(
    store: Store,
    trajectories: DatasetRef,
    known: ItemRows,
    scorers: Sequence[Scorer],
    weigh: Completed,
    completed: Completed | None,
    rejected: list[JsonObject],
    raised: UserErrors,
    signs: GamingSigns,
    tally: Tally,
) -> Iterator[pa.RecordBatch]:
    """Yield score rows, a batch of trajectories at a time; add quarantine rows to `rejected`."""
    columns = [name for name in schema_of("trajectories").names if name not in _STREAMS]
    without_item = [scorer for scorer in scorers if scores_stored(scorer)]
    for asked in _batches(store, trajectories, columns, stored=bool(without_item)):
        rows: list[JsonObject] = []
        for scorer in scorers:
            if isinstance(scorer, Prepares):
                scorer.prepare(asked)
        for trajectory in asked:
            if trajectory["source"] == ROLLOUT:
                scores, reason = _judge_rollout(known.get(trajectory["item_id"]), trajectory, scorers, raised)
            else:
                scores, reason = _judge(_NO_ITEM, trajectory, without_item, raised)
            signs.add(trajectory, scores)
            tally.add(trajectory, scores)
            weighed = weigh(scores)
            weighed = completed(weighed) if completed and weighed else weighed
            if trajectory["source"] == ROLLOUT:
                signs.add_reward(weighed)
            rows += weighed
            if reason:
                rejected.append(_quarantine_row(trajectories.name, trajectory, reason))
        yield pa.RecordBatch.from_pylist(rows, schema=schema_of("scores"))
    for scorer in scorers:
        if isinstance(scorer, Concludes):
            scorer.conclude()


def _batches(store: Store, trajectories: DatasetRef, columns: Sequence[str], *, stored: bool) -> Iterator[list[JsonObject]]:
    """Yield the rows of a dataset; the rollouts of an item, which follow one another, are in one batch.

    Args:
        stored: whether what was captured or imported is among them.
    """
    waiting: list[JsonObject] = []
    for file in dataset_files(store, trajectories):
        for batch in pq.ParquetFile(file).iter_batches(_BATCH, columns=columns):
            waiting += (batch if stored else batch.filter(pc.field("source") == ROLLOUT)).to_pylist()
            end = _end_of_groups(waiting)
            if end:
                yield waiting[:end]
            waiting = waiting[end:]
    if waiting:
        yield waiting


def _end_of_groups(rows: Sequence[Row]) -> int:
    """Return the place behind the last row whose group is sure to be whole; a row without a group is whole."""
    last = rows[-1]["group_id"] if rows else None
    if last is None:
        return len(rows)
    return next((place + 1 for place in range(len(rows) - 1, -1, -1) if rows[place]["group_id"] != last), 0)


def _judge_rollout(
    item: Row | None, trajectory: Row, scorers: Sequence[Scorer], raised: UserErrors
) -> tuple[list[JsonObject], str]:
    if item is None:
        return [], "item unknown"
    rows, reason = _judge(item, trajectory, scorers, raised)
    return rows, reason or ("" if rows else "no scorer for it")


def _judge(item: Row, trajectory: Row, scorers: Sequence[Scorer], raised: UserErrors) -> tuple[list[JsonObject], str]:
    """Return the score rows of one trajectory, or none and the reason for rejecting it."""
    rows: list[JsonObject] = []
    for scorer in scorers:
        try:
            rows += [_score_row(trajectory["trajectory_id"], scorer, score) for score in scorer.score(item, trajectory)]
        except (BusyError, ConfigError):
            raise
        except Exception as error:
            raised.add(error, trajectory)
            return [], f"scorer {scorer.name}: {type(error).__name__}"
    return rows, ""


def _with_reward(scores: list[JsonObject], weights: Mapping[str, float], verifier_weight: float) -> list[JsonObject]:
    """Return the score rows of one trajectory, with the weighted sum as the verifier's value."""
    whole = [row for row in scores if row["turn"] is None]
    parts = {row["scorer"]: weights[row["scorer"]] * row["value"] for row in whole if weights.get(row["scorer"])}
    return reweighed(scores, parts, verifier_weight)


def reweighed(scores: Sequence[JsonObject], parts: Mapping[str, float], weight: float = 1.0) -> list[JsonObject]:
    """Return the score rows of one trajectory; the verifier's value of the whole is `weight` times its own, and gains the weighted
    parts of other scorers."""
    if not parts and weight == 1:
        return list(scores)
    return [_plus(row, parts, weight) if row["turn"] is None and row["origin"] == "verifier" else row for row in scores]


def _plus(row: JsonObject, parts: Mapping[str, float], weight: float) -> JsonObject:
    weighed = {"verifier_weight": weight} if weight != 1 else {}
    evidence = json.loads(row["evidence"]) | {"reward": {row["scorer"]: row["value"], **parts}} | weighed
    value = weight * row["value"] + sum(parts.values())
    return row | {"value": value, "evidence": json.dumps(evidence, sort_keys=True, ensure_ascii=False)}


def _score_row(trajectory_id: str, scorer: Scorer, score: Score) -> JsonObject:
    if not math.isfinite(score.value):
        raise ValueError(f"a score is a finite number, not {score.value}")
    return {
        "trajectory_id": trajectory_id,
        "turn": score.turn,
        "scorer": scorer.name,
        "origin": scorer.origin,
        "value": score.value,
        "success": score.success,
        "reason": score.reason,
        "evidence": json.dumps(score.evidence, sort_keys=True, ensure_ascii=False, allow_nan=False),
        "hints": list(score.hints) or None,
        "demonstration": [message.as_dict() for message in score.demonstration] or None,
    }


def _quarantine_row(dataset: str, trajectory: Row, reason: str) -> JsonObject:
    row = json.dumps(trajectory, ensure_ascii=False)
    return {"dataset": dataset, "row_id": trajectory["trajectory_id"], "reasons": [reason], "row": row}


def _result(
    store: Store,
    trajectories: DatasetRef,
    output: DatasetRef,
    rejected: Sequence[JsonObject],
    parents: list[str],
    details: JsonObject,
) -> StepResult:
    filtered: dict[str, int] = {}
    for row in rejected:
        filtered[row["reasons"][0]] = filtered.get(row["reasons"][0], 0) + 1
    extras = {}
    if rejected:
        table = pa.Table.from_pylist(list(rejected), schema=schema_of("quarantine"))
        extras["quarantine"] = publish_dataset(store, "quarantine", [table], parents=parents)
    return StepResult(
        output=output,
        extras=extras,
        rows_in=trajectories.rows,
        rows_out=trajectories.rows - len(rejected),
        filtered=filtered,
        details={"scores": output.rows, **details},
    )
