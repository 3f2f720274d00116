"""The scores of tokens, which objectives are given."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor


class Scores(NamedTuple):
    """Scores of U tokens: log-prob [U] in nats, with gradient, and entropy [U] in nats of each token's distribution; None where it
    is unknown.

    `top` are the log-probs of K tokens per position, if they were asked for, with gradient [U, K]; `values` are the value head's
    predictions at those positions, if the model has one, with gradient [U]. `balance` is the load-balancing loss of the pack's
    tokens times its coefficient, where a mixture of experts asks for it and gradients are kept.
    """

    logprobs: Tensor
    entropy: Tensor | None
    top: Tensor | None = None
    values: Tensor | None = None
    balance: Tensor | None = None
