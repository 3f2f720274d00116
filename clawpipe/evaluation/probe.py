"""Measure a hinted teacher: one rollout behind the hinted prompt of items whose unhinted rollouts the night has scored already."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import pyarrow as pa

from clawpipe.config.night import EnvironmentSpec, Generation
from clawpipe.config.training import Opd
from clawpipe.contracts.schema import schema_of
from clawpipe.environments.raised import Raised
from clawpipe.evaluation.heldout import results_of
from clawpipe.evaluation.teacher import Pair, judge_teacher
from clawpipe.messages import Message
from clawpipe.policy.hints import Hint, hinted_messages, hints_by_trajectory
from clawpipe.rollouts.generate import generate_shards
from clawpipe.store.artifacts import Store
from clawpipe.store.datasets import publish_dataset, publish_files, read_dataset
from clawpipe.store.refs import DatasetRef, ModelRef, StepResult
from clawpipe.workers.pool import WorkerPool


class _Asked(NamedTuple):
    """An item that the teacher is asked about."""

    item: dict[str, Any]
    hint: Hint
    student: float


def probe_teacher(
    store: Store,
    pool: WorkerPool,
    work: Path,
    items: DatasetRef,
    trajectories: Sequence[DatasetRef],
    scores: Sequence[DatasetRef],
    student: ModelRef,
    teacher: ModelRef,
    environment: EnvironmentSpec,
    rollouts: Generation,
    config: Opd,
    seed: int,
    log: Path | None = None,
) -> StepResult:
    """Let the teacher try train items of the trajectories behind hinted prompts, one rollout each, and compare.

    Args:
        log: file for what the environment raises.

    Returns:
        output: the teacher's `eval_results`, none where nothing is to be tried; extras: its "trajectories", whose tokens hold the
        hinted prompts and whose messages do not; details: see `judge_teacher`.
    """
    if not config.probe_items:
        return StepResult(details={"allowed": True, "n": 0})
    asked = _choose(store, items, trajectories, scores, student, config, seed)
    single = rollouts.once(rollouts.temperature)
    prompts = [_shown(entry, config.repeats) for entry in asked]
    rows = [entry.item for entry in asked]
    shards = generate_shards(store, pool, work, rows, teacher, environment, single, seed, prompts)
    parents = [items.digest, teacher.digest, *(ref.digest for ref in scores)]
    extras = {"trajectories": publish_files(store, "trajectories", shards, parents=parents)} if shards else {}
    raised = Raised(log)
    results = results_of(store, extras["trajectories"], rows, teacher, environment, raised) if shards else []
    table = pa.Table.from_pylist(results, schema=schema_of("eval_results"))
    output = publish_dataset(store, "eval_results", [table], parents=parents)
    known = {entry.item["item_id"]: entry.student for entry in asked}
    pairs = [Pair(float(row["success"]), known[row["item_id"]]) for row in results if row["error"] is None]
    errored = len(asked) - len(pairs)
    return StepResult(
        output=output,
        extras=dict(extras),
        rows_in=len(asked),
        rows_out=len(pairs),
        set_aside={"verification failed": errored} if errored else {},
        details=judge_teacher(pairs, config.min_gain) | raised.details(),
    )


def _shown(entry: _Asked, repeats: int) -> list[dict[str, Any]]:
    messages = [Message.from_dict(message) for message in entry.item["messages"]]
    return [message.as_dict() for message in hinted_messages(messages, entry.hint, repeats)]


def _choose(
    store: Store,
    items: DatasetRef,
    trajectories: Sequence[DatasetRef],
    scores: Sequence[DatasetRef],
    student: ModelRef,
    config: Opd,
    seed: int,
) -> list[_Asked]:
    """At most `config.probe_items` train items that have a hint, drawn by the seed; the first hint of an item's first trajectory
    that has any."""
    tried = [
        row for ref in trajectories for row in read_dataset(store, ref, ["trajectory_id", "item_id", "policy_version"]).to_pylist()
    ]
    columns = ["trajectory_id", "turn", "scorer", "origin", "success", "hints", "demonstration"]
    scored = [row for ref in scores for row in read_dataset(store, ref, columns).to_pylist()]
    hints = hints_by_trajectory(scored, config)
    first: dict[str, Hint] = {}
    for row in tried:
        if row["trajectory_id"] in hints:
            first.setdefault(row["item_id"], hints[row["trajectory_id"]][0])
    student_success = _success_by_item(tried, scored, student.policy_version)
    train = {row["item_id"]: row for row in read_dataset(store, items).to_pylist() if row["split"] == "train"}
    known = sorted(set(first) & set(student_success) & set(train))
    drawn = random.Random(seed).sample(known, min(len(known), config.probe_items))
    return [_Asked(train[item], first[item], student_success[item]) for item in drawn]


def _rows(store: Store, datasets: Sequence[DatasetRef], columns: list[str]) -> list[dict[str, Any]]:
    return [row for ref in datasets for row in read_dataset(store, ref, columns).to_pylist()]


def _success_by_item(tried: Sequence[Mapping[str, Any]], scored: Iterable[Mapping[str, Any]], version: str) -> dict[str, float]:
    """The share of an item's trajectories that succeeded: of the student's own ones where there are any, else of all."""
    verdicts: dict[str, bool] = {}
    for row in sorted(scored, key=lambda row: row["scorer"]):
        if row["origin"] == "verifier" and row["turn"] is None and row["success"] is not None:
            verdicts.setdefault(row["trajectory_id"], row["success"])
    outcomes: dict[str, list[tuple[bool, bool]]] = {}
    for row in tried:
        if row["trajectory_id"] in verdicts:
            outcomes.setdefault(row["item_id"], []).append((row["policy_version"] == version, verdicts[row["trajectory_id"]]))
    return {item: _share(successes) for item, successes in outcomes.items()}


def _share(outcomes: Sequence[tuple[bool, bool]]) -> float:
    """Of (is the student's own, success)."""
    own = [success for mine, success in outcomes if mine]
    return fmean(own or [success for _, success in outcomes])
