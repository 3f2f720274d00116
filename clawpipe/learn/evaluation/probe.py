"""Measure a hinted teacher: roll out items with the hint in the prompt, where rollouts without it are already scored."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import pyarrow as pa

from clawpipe.core.basics.json_types import JsonObject, Row
from clawpipe.core.config.environment import Played
from clawpipe.core.config.generation import Generation
from clawpipe.core.config.methods import Opd
from clawpipe.core.contracts.sampled import is_part
from clawpipe.core.contracts.schema import schema_of
from clawpipe.core.conversation.messages import Message
from clawpipe.core.store.artifacts import Store
from clawpipe.core.store.datasets import dataset_rows, publish_dataset, publish_files, read_dataset
from clawpipe.core.store.refs import DatasetRef, ModelRef, StepResult
from clawpipe.core.user_code.user_errors import UserErrors
from clawpipe.learn.evaluation.heldout.heldout import results_of
from clawpipe.learn.evaluation.teacher import Pair, judge_teacher
from clawpipe.model.policy.hints import Hint, hinted_messages, hints_by_trajectory
from clawpipe.play.rollouts.generate import generate_shards
from clawpipe.play.workers.pool import WorkerPool

_UNTRIED = (
    "no hint could be tried: what was captured or imported has no task item, on which a hinted teacher could show what it is worth"
)


class _Trial(NamedTuple):
    """An item for the teacher to try, with its hint and the student's success."""

    item: Row
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
    environment: Played,
    rollouts: Generation,
    config: Opd,
    seed: int,
    log: Path | None = None,
) -> StepResult:
    """Let the teacher try train items of the trajectories with hinted prompts, one rollout each, and compare it with the student.

    Args:
        log: file for the environment's errors.

    Returns:
        output: the teacher's `eval_results`, absent where nothing is tried; extras: "trajectories", whose tokens hold the hinted
        prompts and whose messages do not; details: see `judge_teacher`; and "untried" and "warnings" where no row has a task item.
    """
    if not config.probe_items:
        return StepResult(details={"allowed": True, "n": 0})
    if not _have_items(store, items, trajectories):
        return StepResult(details=judge_teacher([], config.min_gain) | {"untried": True, "warnings": [_UNTRIED]})
    trials = _choose(store, items, trajectories, scores, student, config, seed)
    single = rollouts.once(rollouts.temperature)
    prompts = [_hinted_prompt(trial, config.repeats) for trial in trials]
    rows = [trial.item for trial in trials]
    shards = generate_shards(store, pool, work, rows, teacher, environment, single, seed, prompts)
    parents = [items.digest, teacher.digest, *(ref.digest for ref in scores)]
    extras = {"trajectories": publish_files(store, "trajectories", shards, parents=parents)} if shards else {}
    raised = UserErrors(log)
    results = results_of(store, extras["trajectories"], rows, teacher, environment, raised) if shards else []
    table = pa.Table.from_pylist(results, schema=schema_of("eval_results"))
    output = publish_dataset(store, "eval_results", [table], parents=parents)
    known = {trial.item["item_id"]: trial.student for trial in trials}
    pairs = [Pair(float(row["success"]), known[row["item_id"]]) for row in results if row["error"] is None]
    errored = len(trials) - len(pairs)
    return StepResult(
        output=output,
        extras=dict(extras),
        rows_in=len(trials),
        rows_out=len(pairs),
        filtered={"verification failed": errored} if errored else {},
        details=judge_teacher(pairs, config.min_gain) | raised.details(),
    )


def _have_items(store: Store, items: DatasetRef, trajectories: Sequence[DatasetRef]) -> bool:
    """Whether any trajectory tries a task item."""
    known = {row["item_id"] for row in dataset_rows(store, items, ["item_id"])}
    return any(row["item_id"] in known for ref in trajectories for row in dataset_rows(store, ref, ["item_id"]))


def _hinted_prompt(trial: _Trial, repeats: int) -> list[JsonObject]:
    messages = [Message.from_dict(message) for message in trial.item["messages"]]
    return [message.as_dict() for message in hinted_messages(messages, trial.hint, repeats)]


def _choose(
    store: Store,
    items: DatasetRef,
    trajectories: Sequence[DatasetRef],
    scores: Sequence[DatasetRef],
    student: ModelRef,
    config: Opd,
    seed: int,
) -> list[_Trial]:
    """Choose at most `config.probe_items` train items that have a hint, drawn by the seed. An item's hint is the first one of
    its first trajectory that has any."""
    known = ["trajectory_id", "item_id", "policy_version", "extra"]
    tried = [row for ref in trajectories for row in read_dataset(store, ref, known).to_pylist()]
    columns = ["trajectory_id", "turn", "scorer", "origin", "success", "hints", "demonstration"]
    scored = [row for ref in scores for row in read_dataset(store, ref, columns).to_pylist()]
    hints = hints_by_trajectory(scored, config)
    first: dict[str, Hint] = {}
    for row in tried:
        if row["trajectory_id"] in hints:
            first.setdefault(row["item_id"], hints[row["trajectory_id"]][0])
    student_success = _success_by_item([row for row in tried if not is_part(row)], scored, student.policy_version)
    train = {row["item_id"]: row for row in read_dataset(store, items).to_pylist() if row["split"] == "train"}
    asked = sorted(set(first) & set(student_success) & set(train))
    drawn = random.Random(seed).sample(asked, min(len(asked), config.probe_items))
    return [_Trial(train[item], first[item], student_success[item]) for item in drawn]


def _success_by_item(tried: Sequence[Mapping[str, Any]], scored: Iterable[Mapping[str, Any]], version: str) -> dict[str, float]:
    """Return each item's share of successful trajectories: of the student's where there are any, else of all."""
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
    """Return the share of successes among pairs (is the student's, success): of the student's if there are any, else of all."""
    students = [success for mine, success in outcomes if mine]
    return fmean(students or [success for _, success in outcomes])
