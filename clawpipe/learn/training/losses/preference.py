"""The loss on preference pairs: pure functions over flat per-token tensors.

For pair p with chosen side c and rejected side r, and s the sum over a side's N trained tokens of `lp - ref` (log-prob
under the policy being trained, and under the reference policy):

    sigmoid         -logsigmoid(beta * (s_c - s_r))                 DPO (arXiv 2305.18290, eq. 7)
    sigmoid_norm    -logsigmoid(beta * (s_c/N_c - s_r/N_r))         length-normalised
    smoothed        -(1 - e) * logsigmoid(h) - e * logsigmoid(-h)   conservative DPO: of either above, with h what it takes the
                                                                    logsigmoid of and e = label_smoothing (Mitchell 2023,
                                                                    "A note on DPO with noisy preferences", eq. 3)
    ipo             (s_c/N_c - s_r/N_r - 1/(2 beta))^2              IPO (2310.12036, eq. 17), beta for its tau
    nll             -nll_coef * (sum of lp of c) / N_c, added       iterative RPO (2404.19733, eq. 2), its alpha for nll_coef

The normalised forms are those of TRL 1.16, which confirmed IPO's with the paper's authors: a sum would make the squared
loss scale with a side's length. TRL's `sft` term is the mean over all chosen tokens of a batch, which gives long sides
more weight; as the paper does, each pair counts alike here, and the two agree for batches of one pair.
"""

from __future__ import annotations

from typing import NamedTuple

import torch.nn.functional as F
from torch import Tensor

from clawpipe.core.config.training import Dpo

Metrics = dict[str, Tensor]


class _Sides(NamedTuple):
    """One side of each pair, tensors [P]: trained tokens, summed log-prob, summed log-ratio."""

    tokens: Tensor
    logprob: Tensor
    log_ratio: Tensor


def preference_loss(logprobs: Tensor, reference: Tensor, rows: Tensor, config: Dpo) -> tuple[Tensor, Metrics]:
    """Return the loss of every pair, and metrics over them.

    Args:
        logprobs: float [N], log-prob in nats of each trained token, with gradient.
        reference: float [N], the same under the reference policy.
        rows: int [N], which row a token belongs to: 2p for the chosen side of pair p, 2p + 1 for its rejected side. Every
            row from 0 to 2P - 1 has at least one token; the order of tokens is free.
        config: variant and coefficients.

    Returns:
        loss per pair [P] with gradient, and detached means over the pairs: `rewards_chosen` and `rewards_rejected` are
        beta * s, whatever the variant, `margin` their difference, `accuracy` the share of pairs in which the chosen side
        has more; `nll` is a mean a token, `lp_chosen` and `lp_rejected` are sums a side. Empty where P is 0.
    """
    if not rows.numel():
        return logprobs, {}
    chosen, rejected = _sides(logprobs, reference, rows)
    nll = -chosen.logprob / chosen.tokens
    loss = _contrast(chosen, rejected, config) + config.nll_coef * nll
    rewards_chosen, rewards_rejected = (config.beta * side.log_ratio for side in (chosen, rejected))
    metrics = {
        "rewards_chosen": rewards_chosen,
        "rewards_rejected": rewards_rejected,
        "margin": rewards_chosen - rewards_rejected,
        "accuracy": (rewards_chosen > rewards_rejected).to(loss.dtype),
        "nll": nll,
        "lp_chosen": chosen.logprob,
        "lp_rejected": rejected.logprob,
    }
    return loss, {name: value.detach().mean() for name, value in metrics.items()}


def _sides(logprobs: Tensor, reference: Tensor, rows: Tensor) -> tuple[_Sides, _Sides]:
    count = rows.bincount()
    sums = (logprobs.new_zeros(len(count)).index_add(0, rows, stream) for stream in (logprobs, logprobs - reference))
    streams = (count, *sums)
    return _Sides(*(stream[0::2] for stream in streams)), _Sides(*(stream[1::2] for stream in streams))


def _contrast(chosen: _Sides, rejected: _Sides, config: Dpo) -> Tensor:
    if config.variant == "sigmoid":
        return _smoothed(config.beta * (chosen.log_ratio - rejected.log_ratio), config.label_smoothing)
    delta = chosen.log_ratio / chosen.tokens - rejected.log_ratio / rejected.tokens
    if config.variant == "ipo":
        return (delta - 1 / (2 * config.beta)) ** 2
    return _smoothed(config.beta * delta, config.label_smoothing)


def _smoothed(margin: Tensor, wrong: float) -> Tensor:
    """Return the cross-entropy of a label that is wrong with probability `wrong`; with 0 it is plain DPO, to the last bit."""
    loss = -F.logsigmoid(margin)
    return (1 - wrong) * loss - wrong * F.logsigmoid(-margin) if wrong else loss
