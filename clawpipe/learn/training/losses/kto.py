"""The KTO loss on rows that are labelled desirable or undesirable, one by one.

For a row y that answers x, let r be the sum over its trained tokens of `lp - ref` (log-prob under the policy being trained, and
under the reference policy). Ethayarajh et al. 2024 (arXiv 2402.01306, section 4.1) give a value to how far r is from a reference
point z; the loss is how far that value is from the most that it can be:

    desirable     lambda_D * (1 - sigmoid(beta * (r - z)))
    undesirable   lambda_U * (1 - sigmoid(beta * (z - r)))
    z             max(0, mean over m rows of the log-ratio of answers y' to other questions)         no gradient

z estimates the divergence of the policy from the reference. Its answers are mismatched, as in the paper and in TRL 1.16: the mean
over the rows' own answers would be what the loss moves, and would take the value of every row along.
"""

from __future__ import annotations

import torch
from torch import Tensor

from clawpipe.core.config.methods import Kto

Metrics = dict[str, Tensor]


def kto_loss(log_ratios: Tensor, desirable: Tensor, point: Tensor, config: Kto) -> tuple[Tensor, Metrics]:
    """Return the loss of every row, and metrics over them.

    Args:
        log_ratios: float [R] in nats, r of each row, with gradient.
        desirable: bool [R], labels.
        point: float [], z in nats, see `reference_point`.
        config: beta and the weights of both labels; a desirable row without a weight has that of the others.

    Returns:
        loss [R] with gradient, and detached means over the rows: `kl` is z; `_chosen` the share of desirable rows; and
        `_rewards_chosen` and `_rewards_rejected` are beta * r, with 0 for rows of the other label.
    """
    margin = config.beta * (log_ratios - point.detach())
    value = torch.where(desirable, margin, -margin).sigmoid()
    rewards, chosen = config.beta * log_ratios.detach(), desirable.to(log_ratios.dtype)
    good = config.undesirable_weight if config.desirable_weight is None else config.desirable_weight
    weight = good * chosen + config.undesirable_weight * (1 - chosen)
    metrics = {"_chosen": chosen, "_rewards_chosen": rewards * chosen, "_rewards_rejected": rewards * (1 - chosen)}
    return weight * (1 - value), {"kl": point.detach()} | {name: part.mean() for name, part in metrics.items()}


def reference_point(total: Tensor, rows: Tensor) -> Tensor:
    """Return z in nats: the mean of `rows` log-ratios that sum to `total`, at least 0; 0 where there are no rows."""
    return (total / rows.clamp(min=1)).clamp(min=0).detach()


def row_sums(values: Tensor, rows: Tensor) -> Tensor:
    """Return the sums [R] of `values` [N] over the tokens of each row; `rows` int [N] numbers the rows from 0."""
    return values.new_zeros(len(rows.bincount())).index_add(0, rows, values)
