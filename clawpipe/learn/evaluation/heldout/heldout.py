"""Held-out evaluation: run a policy on items that no night trains on; one result per item."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc

from clawpipe.core.basics.json_types import Row
from clawpipe.core.config.environment import Played
from clawpipe.core.contracts.sampled import is_part, sampled_by_episode
from clawpipe.core.contracts.schema import schema_of
from clawpipe.core.store.artifacts import Store
from clawpipe.core.store.datasets import publish_dataset, read_dataset
from clawpipe.core.store.refs import DatasetRef, ModelRef, StepResult
from clawpipe.core.user_code.user_errors import UserErrors
from clawpipe.play.environments.base import TaskItem
from clawpipe.play.environments.ending import COLUMNS, Ending, Judges, messages_of, outcome_of
from clawpipe.play.environments.several import open_environments
from clawpipe.play.rollouts.generate import item_rows


class RollOut(Protocol):
    """Rolls out the task items at these places of a split once each, all policies with the same seed. Returns the trajectories, a
    file for each shard (see `clawpipe.play.rollouts.generate.roll_out`)."""

    def __call__(self, items: DatasetRef, split: str, ordinals: Sequence[int], policy: ModelRef) -> DatasetRef: ...


def evaluate(
    store: Store, roll_out: RollOut, items: DatasetRef, policy: ModelRef, environment: Played, log: Path | None = None
) -> StepResult:
    """Roll out every held-out item once and score it with the environment; results of several policies pair up.

    An item whose verification fails is kept with its error and without an outcome: it counts for no model.

    Args:
        log: file for the environment's errors: message, traceback, row.
    """
    heldout = read_dataset(store, items).filter(pc.field("split") == "heldout").to_pylist()
    raised = UserErrors(log)
    run = roll_out(items, "heldout", range(len(heldout)), policy)
    rows = results_of(store, run, heldout, policy, environment, raised)
    table = pa.Table.from_pylist(rows, schema=schema_of("eval_results"))
    output = publish_dataset(store, "eval_results", [table], parents=[items.digest, policy.digest])
    errored = sum(row["error"] is not None for row in rows)
    return StepResult(
        output=output,
        extras={"trajectories": run},
        rows_in=len(heldout),
        rows_out=len(rows) - errored,
        filtered={"verification failed": errored} if errored else {},
        details={
            "success": sum(bool(row["success"]) for row in rows),
            "items": len(rows),
            **_lengths(store, run),
            **raised.details(),
        },
    )


def probe_policies(
    store: Store,
    roll_out: RollOut,
    items: DatasetRef,
    ordinals: Sequence[int],
    policies: Mapping[str, ModelRef],
    environment: Played,
    log: Path | None = None,
) -> StepResult:
    """Roll out some train items once with each policy of a training, and score them.

    Args:
        ordinals: of the train items.
        policies: by the optimizer step after which each was kept, such as step-000004.

    Returns:
        extras: the trajectories, by the policies' names; details: "probes", a list of {step, success, items} in the order of steps.
        An item whose verification fails is not counted.
    """
    rows, raised = item_rows(store, items, "train", ordinals), UserErrors(log)
    runs: dict[str, DatasetRef] = {}
    probes = []
    for name, policy in sorted(policies.items()):
        runs[name] = roll_out(items, "train", ordinals, policy)
        tried = results_of(store, runs[name], rows, policy, environment, raised)
        verified = [bool(row["success"]) for row in tried if row["error"] is None]
        success = {"success": sum(verified) / len(verified)} if verified else {}
        probes.append({"step": int(name.rpartition("-")[2]), "items": len(verified), **success})
    return StepResult(extras=dict(runs), details={"probes": probes, **raised.details()})


def _lengths(store: Store, run: DatasetRef) -> dict[str, float]:
    """Return the mean number of sampled tokens of an episode; nothing where tokens were not recorded."""
    sampled = sampled_by_episode(read_dataset(store, run, ["trajectory_id", "loss_mask", "extra"]).to_pylist())
    return {"reply_tokens": sampled.total() / len(sampled)} if sampled.total() else {}


def results_of(
    store: Store, run: DatasetRef, items: Sequence[Row], policy: ModelRef, environment: Played, raised: UserErrors
) -> list[Row]:
    """Return rows of `eval_results`, one per episode of `run`, in its order.

    Args:
        items: the trajectories' rows of `task_items`.
        policy: the policy that sampled them.
        raised: collects the environment's errors.
    """
    trajectories = read_dataset(store, run, ["item_id", "trajectory_id", "messages", "seed", "extra", *COLUMNS]).to_pylist()
    known = {row["item_id"]: TaskItem.from_row(row) for row in items}
    with open_environments(environment) as judges:
        tried = [(known[row["item_id"]], row) for row in trajectories if not is_part(row)]
        return [_result(judges.of(item.environment), item, row, policy.policy_version, raised) for item, row in tried]


def _result(environment: Judges, item: TaskItem, row: Row, policy_version: str, raised: UserErrors) -> Row:
    result = {
        "policy_version": policy_version,
        "item_id": item.item_id,
        "slice": item.slice,
        "trajectory_id": row["trajectory_id"],
        "success": None,
        "value": None,
        "error": None,
        "seed": row["seed"],
    }
    try:
        outcome = outcome_of(environment, item, messages_of(row), Ending.from_row(row))
    except Exception as error:  # a user's environment may raise anything, and one item must not end the night
        raised.add(error, row)
        return result | {"error": f"{type(error).__name__}: {error}"}
    return result | {"success": outcome.success, "value": outcome.value}
