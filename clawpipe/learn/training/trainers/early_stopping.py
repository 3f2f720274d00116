"""Early stopping by a bound on the KL divergence or by validation loss.

Decisions depend only on the metrics of the steps so far, so a resumed run makes the same ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from clawpipe.errors import DataError
from clawpipe.learn.training.data.rows import Sample, groups_of, of_groups


def hold_out(rows: Sequence[Sample], share: float, seed: int) -> tuple[Sequence[Sample], Sequence[Sample]]:
    """Split rows into (training, validation), by whole groups; rows keep their order.

    The validation rows are those of max(1, round(share * groups)) groups, which `seed` draws without replacement.

    Raises:
        DataError: no group would be left to train on.
    """
    groups = list(dict.fromkeys(groups_of(rows)))
    count = max(1, round(share * len(groups)))
    if count == len(groups):
        raise DataError("a single group cannot be split", "train.validation", "train on more groups, or set it to 0")
    order = np.random.default_rng((seed, 2**31)).permutation(len(groups))  # apart from the generators that shuffle epochs
    kept = {groups[index] for index in order[:count]}
    return of_groups(rows, lambda group: group not in kept), of_groups(rows, kept.__contains__)


Steps = Sequence[dict[str, float]]


class Limits(NamedTuple):
    """Limits of a run.

    Attributes:
        max_kl: greatest approx_kl of a step: mean k3 estimate of the KL divergence from the policy that sampled, in nats per token.
        patience: optimizer steps without a lower validation loss after which the run stops.
    """

    max_kl: float | None = None
    patience: int = 2


def stop_reason(steps: Steps, limits: Limits) -> str | None:
    """Return the reason to stop after the last of `steps`, the metrics of each optimizer step; None if the run goes on."""
    kl = steps[-1].get("approx_kl", 0.0)
    if limits.max_kl is not None and kl > limits.max_kl:
        return f"approx_kl {kl:.4g} exceeds train.max_kl {limits.max_kl:g} after optimizer step {len(steps)}"
    best = best_step(steps)
    if best is not None and len(steps) - best >= limits.patience:
        return f"no better validation loss in {limits.patience} optimizer steps after step {best}"
    return None


def best_step(steps: Steps) -> int | None:
    """Return the number, from 1, of the first step with the lowest validation loss; None if no step has one."""
    losses = [(step["validation_loss"], number) for number, step in enumerate(steps, 1) if "validation_loss" in step]
    return min(losses)[1] if losses else None
