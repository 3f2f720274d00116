"""Rewards of a round's rollouts, computed from its scores."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from clawpipe.core.store.artifacts import Store
from clawpipe.core.store.datasets import read_dataset
from clawpipe.core.store.refs import DatasetRef

SUCCESS = "rollouts/success"


def round_rewards(store: Store, scores: Sequence[DatasetRef]) -> dict[str, float]:
    """Return mean and standard deviation of the trajectories' scores, and the share of successes among those with a verdict.

    A value that cannot be computed is absent.

    Raises:
        DataError: a dataset is missing or damaged.
    """
    rows = [row for dataset in scores for row in read_dataset(store, dataset, ["turn", "value", "success"]).to_pylist()]
    whole = [row for row in rows if row["turn"] is None]
    successes = [row["success"] for row in whole if row["success"] is not None]
    metrics = {SUCCESS: float(np.mean(successes))} if successes else {}
    if whole:
        values = np.array([row["value"] for row in whole])
        metrics |= {"reward/mean": float(values.mean()), "reward/std": float(values.std())}
    return metrics
