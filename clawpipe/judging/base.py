"""The scorer protocol, and the step in which several scorers score a dataset."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from clawpipe.contracts.schema import schema_of
from clawpipe.environments.raised import Raised
from clawpipe.errors import BusyError, ConfigError
from clawpipe.extensions import ExtensionPoint
from clawpipe.json_types import JsonObject
from clawpipe.messages import Message
from clawpipe.store.artifacts import Store
from clawpipe.store.datasets import dataset_files, publish_dataset, read_dataset
from clawpipe.store.parts import rechunk
from clawpipe.store.refs import DatasetRef, StepResult

Origin = Literal["verifier", "judge", "user", "custom"]
Row = Mapping[str, Any]

# Scorers read messages; the token streams are most of a trajectory's bytes.
_STREAMS = ("token_ids", "loss_mask", "logprobs")
_BATCH = 256
ROLLOUT = "rollout"  # what has no item of an environment cannot be verified by one
_NO_WEIGHTS: Mapping[str, float] = {}
SCORERS = ExtensionPoint("scorer", "scorers", members=("name", "origin", "score"))


@dataclass(frozen=True)
class Score:
    """A number for a trajectory (`turn` None) or for one of its turns.

    Attributes:
        value: finite.
        success: None where the scorer does not say.
        evidence: the facts behind the value; plain JSON, equal for equal inputs.
        hints: hindsight in words, candidates of one to three sentences each.
        demonstration: the turns that would have been right, without the question.
    """

    value: float
    success: bool | None = None
    reason: str = ""
    evidence: JsonObject = field(default_factory=dict)
    turn: int | None = None
    hints: tuple[str, ...] = ()
    demonstration: tuple[Message, ...] = ()


class Scorer(Protocol):
    """Scores trajectories. The `name` of each scorer of a dataset is different."""

    @property
    def name(self) -> str: ...

    @property
    def origin(self) -> Origin: ...

    def score(self, item: Row, trajectory: Row) -> Iterable[Score]:
        """Yield scores of one trajectory; none if this scorer does not apply to it.

        Args:
            item: row of `task_items`.
            trajectory: row of `trajectories` without the token streams.
        """
        ...


def score_dataset(
    store: Store,
    trajectories: DatasetRef,
    items: DatasetRef,
    scorers: Sequence[Scorer],
    log: Path | None = None,
    weights: Mapping[str, float] = _NO_WEIGHTS,
) -> StepResult:
    """Let every scorer score every trajectory; scores are in the trajectories' order, then by scorer name.

    Imported trajectories are skipped: the scores that came with them judge them.
    A trajectory is rejected, with all its scores, if its item is unknown, a scorer raises, or no scorer has a score for it.

    Args:
        log: file for the exceptions of scorers: message, traceback, row.
        weights: by scorer name; a verifier's score of a trajectory, which is its reward, gains each of these scorers' own times its
            weight, and keeps the parts as evidence.

    Returns:
        output: `scores`; extras: "quarantine", if a trajectory was rejected; rows_in, rows_out and set_aside count
        trajectories, details["scores"] counts scores, details["raised"] says what was raised, if anything.

    Raises:
        ConfigError: two scorers share a name, or a scorer is set up wrongly.
        DataError: a dataset is missing or damaged.
        BusyError: a scorer's service is away; the rows are not at fault.
    """
    ordered = sorted(scorers, key=lambda scorer: scorer.name)
    if len({scorer.name for scorer in ordered}) < len(ordered):
        raise ConfigError(f"scorers need different names: {', '.join(scorer.name for scorer in ordered)}")
    known = {row["item_id"]: row for row in read_dataset(store, items).to_pylist()}
    rejected: list[JsonObject] = []
    raised = Raised(log)
    batches = _score_batches(store, trajectories, known, ordered, weights, rejected, raised)
    parents = [trajectories.digest, items.digest]
    output = publish_dataset(store, "scores", rechunk(batches, schema_of("scores")), parents=parents)
    return _result(store, trajectories, output, rejected, parents, raised)


def _score_batches(
    store: Store,
    trajectories: DatasetRef,
    known: Mapping[str, Row],
    scorers: Sequence[Scorer],
    weights: Mapping[str, float],
    rejected: list[JsonObject],
    raised: Raised,
) -> Iterator[pa.RecordBatch]:
    """Yield score rows, a batch of trajectories at a time; add quarantine rows to `rejected`."""
    columns = [name for name in schema_of("trajectories").names if name not in _STREAMS]
    for file in dataset_files(store, trajectories):
        for batch in pq.ParquetFile(file).iter_batches(_BATCH, columns=columns):
            rows: list[JsonObject] = []
            for trajectory in batch.filter(pc.field("source") == ROLLOUT).to_pylist():
                scores, reason = _judge(known.get(trajectory["item_id"]), trajectory, scorers, raised)
                rows += _with_reward(scores, weights)
                if reason:
                    rejected.append(_quarantine_row(trajectories.name, trajectory, reason))
            yield pa.RecordBatch.from_pylist(rows, schema=schema_of("scores"))


def _judge(item: Row | None, trajectory: Row, scorers: Sequence[Scorer], raised: Raised) -> tuple[list[JsonObject], str]:
    """Return the score rows of one trajectory, or none and the reason for rejecting it."""
    if item is None:
        return [], "item unknown"
    rows: list[JsonObject] = []
    for scorer in scorers:
        try:
            rows += [_score_row(trajectory["trajectory_id"], scorer, score) for score in scorer.score(item, trajectory)]
        except (BusyError, ConfigError):
            raise
        except Exception as error:
            raised.add(error, trajectory)
            return [], f"scorer {scorer.name}: {type(error).__name__}"
    return rows, "" if rows else "no scorer for it"


def _with_reward(scores: list[JsonObject], weights: Mapping[str, float]) -> list[JsonObject]:
    """Return the score rows of one trajectory, with the weighted sum as the verifier's value."""
    whole = [row for row in scores if row["turn"] is None]
    parts = {row["scorer"]: weights[row["scorer"]] * row["value"] for row in whole if weights.get(row["scorer"])}
    return [_plus(row, parts) if parts and row["turn"] is None and row["origin"] == "verifier" else row for row in scores]


def _plus(row: JsonObject, parts: Mapping[str, float]) -> JsonObject:
    evidence = json.loads(row["evidence"]) | {"reward": {row["scorer"]: row["value"], **parts}}
    return row | {"value": row["value"] + sum(parts.values()), "evidence": json.dumps(evidence, sort_keys=True, ensure_ascii=False)}


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
    raised: Raised,
) -> StepResult:
    set_aside: dict[str, int] = {}
    for row in rejected:
        set_aside[row["reasons"][0]] = set_aside.get(row["reasons"][0], 0) + 1
    extras = {}
    if rejected:
        table = pa.Table.from_pylist(list(rejected), schema=schema_of("quarantine"))
        extras["quarantine"] = publish_dataset(store, "quarantine", [table], parents=parents)
    return StepResult(
        output=output,
        extras=extras,
        rows_in=trajectories.rows,
        rows_out=trajectories.rows - len(rejected),
        set_aside=set_aside,
        details={"scores": output.rows, **raised.details()},
    )
