"""How far policies are from one another, token by token."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

from torch import Tensor

from clawpipe.engines.embedded import EmbeddedEngine
from clawpipe.workers.contexts import Context
from clawpipe.policy.spec import PolicySpec


def divergences(
    load: Callable[[PolicySpec], EmbeddedEngine], reference: PolicySpec, others: Sequence[PolicySpec], contexts: Sequence[Context]
) -> list[float | None]:
    """Mean KL(reference || other) in nats a token over the positions of the contexts, for each of the others; None where it is
    not finite.

    One policy is loaded at a time; the reference's distributions wait on the CPU (4 bytes a position and word).
    """
    expected = list(_distributions(load(reference), contexts))
    return [_mean_divergence(expected, _distributions(load(other), contexts)) for other in others]


def _distributions(engine: EmbeddedEngine, contexts: Sequence[Context]) -> Iterator[Tensor]:
    """Log-probs (positions, vocabulary) of each context."""
    return (engine.distributions(context.ids, context.positions).cpu() for context in contexts)


def _mean_divergence(expected: Sequence[Tensor], found: Iterator[Tensor]) -> float | None:
    """sum_v p (log p - log q), averaged; a difference of less than rounding can be negative and counts as none."""
    total = sum((p.exp() * (p - q)).double().sum().item() for p, q in zip(expected, found, strict=True))
    return max(total / sum(map(len, expected)), 0.0) if math.isfinite(total) else None
