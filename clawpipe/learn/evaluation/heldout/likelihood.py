"""Score held-out conversations and preference pairs by their likelihood under a policy, without generating anything.

The likelihood of a conversation is the mean log-prob of the tokens of its replies, in nats at temperature 1; a pair is right where
that of the chosen side is above that of the rejected one (the ranking accuracy of a reward model, with this mean as the reward).
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

import numpy as np

from clawpipe.core.basics.json_types import Row
from clawpipe.core.store.artifacts import Store
from clawpipe.core.store.datasets import read_dataset
from clawpipe.core.store.refs import DatasetRef, ModelRef, StepResult
from clawpipe.learn.evaluation.heldout.results import publish_results
from clawpipe.learn.evaluation.heldout.turns import scored_tokens
from clawpipe.play.recorded.compare import Asked, score_rows
from clawpipe.play.workers.pool import WorkerPool

Side = tuple[Sequence[int], Sequence[bool]]  # token ids, and the mask of those that are scored: never the first, and one at least


def score_conversations(
    store: Store, pool: WorkerPool, conversations: DatasetRef, policy: ModelRef, baseline: DatasetRef | None
) -> StepResult:
    """Compute the likelihood of each conversation under a policy.

    Args:
        conversations: drawn held-out trajectories.
        baseline: the `eval_results` of the base model; None: this is the base model.

    Returns:
        output: `eval_results`: value is the likelihood, success whether it is above that of the base model.
        details: success, items, and log_prob, the mean likelihood.
    """
    rows = read_dataset(store, conversations).to_pylist()
    values = likelihoods(store, pool, policy, [scored_tokens(row) for row in rows])
    before = _values(store, baseline) if baseline else {}
    results = [
        _result(policy, row["trajectory_id"], value, value > before.get(row["trajectory_id"], np.inf))
        for row, value in zip(rows, values, strict=True)
    ]
    return publish_results(store, results, conversations, policy, {"log_prob": fmean(values)})


def score_pairs(store: Store, pool: WorkerPool, pairs: DatasetRef, policy: ModelRef) -> StepResult:
    """Compute which side of each pair is likelier under a policy.

    Args:
        pairs: drawn held-out pairs, with token ids.

    Returns:
        output: `eval_results`: value is the chosen side's likelihood less the rejected one's, success whether that is positive;
        details: success, items, and log_prob, the mean likelihood of the chosen sides.
    """
    rows = read_dataset(store, pairs).to_pylist()
    chosen, rejected = (
        likelihoods(store, pool, policy, [(row[f"{side}_token_ids"], row[f"{side}_loss_mask"]) for row in rows])
        for side in ("chosen", "rejected")
    )
    results = [
        _result(policy, row["pair_id"], good - bad, good > bad) for row, good, bad in zip(rows, chosen, rejected, strict=True)
    ]
    return publish_results(store, results, pairs, policy, {"log_prob": fmean(chosen)})


def likelihoods(store: Store, pool: WorkerPool, policy: ModelRef, sides: Sequence[Side]) -> list[float]:
    """Return the mean log-prob of the scored tokens of each side, in nats at temperature 1."""
    asked = [Asked(ids, np.asarray(mask, bool), 1.0) for ids, mask in sides]
    scored = score_rows(store, pool, policy, asked)
    return [float(values[row.mask].astype(np.float64).mean()) for values, row in zip(scored, asked, strict=True)]


def _values(store: Store, results: DatasetRef) -> dict[str, float]:
    return {row["item_id"]: row["value"] for row in read_dataset(store, results, ["item_id", "value"]).to_pylist()}


def _result(policy: ModelRef, item: str, value: float, success: bool) -> Row:
    names = {"policy_version": policy.policy_version, "item_id": item, "trajectory_id": item, "slice": "all"}
    if not np.isfinite(value):
        return names | {"success": None, "value": None, "error": "the log-probs are not finite", "seed": 0}
    return names | {"success": bool(success), "value": value, "error": None, "seed": 0}
