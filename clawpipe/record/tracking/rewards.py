"""Rewards of a round's rollouts, computed from its scores."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from clawpipe.core.store.artifacts import Store
from clawpipe.core.store.datasets import dataset_batches
from clawpipe.core.store.refs import DatasetRef

SUCCESS = "rollouts/success"


def round_rewards(store: Store, scores: Sequence[DatasetRef]) -> dict[str, float]:
    """Return mean and standard deviation of the trajectories' scores, and the share of successes among those with a verdict.

    A value that cannot be computed is absent.

    Raises:
        DataError: a dataset is missing or damaged.
    """
    batches = (batch for ref in scores for batch in dataset_batches(store, ref, ["turn", "value", "success"]))
    whole = [batch.filter(batch["turn"].is_null()) for batch in batches]
    values = np.concatenate([np.empty(0), *(batch["value"].to_numpy(zero_copy_only=False) for batch in whole)])
    successes = [batch["success"].drop_null() for batch in whole]
    verdicts = sum(map(len, successes))
    metrics = {SUCCESS: sum(column.true_count for column in successes) / verdicts} if verdicts else {}
    if len(values):
        metrics |= {"reward/mean": float(values.mean()), "reward/std": float(values.std())}
    return metrics
