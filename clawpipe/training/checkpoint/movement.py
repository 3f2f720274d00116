"""How far training moved the weights, so that a run that learnt nothing can say so."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from clawpipe.training.checkpoint.state import trainable
from clawpipe.training.process.collectives import gathered, whole

_ELEMENTS = 1 << 16  # of a tensor; of a larger one evenly spread elements stand for all, and a copy of it stays small
_LEAST = torch.finfo(torch.float32).eps  # of the weights' norm: less is what rounding does


class _Part(NamedTuple):
    """Of a weight, every `each`-th of its elements."""

    elements: Tensor
    each: int


class Movement:
    """Holds trained weights as they are now, to compare them with later. All processes take part in both."""

    def __init__(self, model: nn.Module) -> None:
        self._before = _sampled(model)

    def relative(self, model: nn.Module) -> float:
        """Norm of the change of the trained weights over their norm before: what is written in the end, so in their own dtype.

        Of a large tensor 65,536 elements are compared.
        """
        pairs = list(zip(_sampled(model), self._before, strict=True))
        moved = sum(now.each * float((now.elements.double() - before.elements.double()).square().sum()) for now, before in pairs)
        norm = sum(before.each * float(before.elements.double().square().sum()) for _, before in pairs)
        return math.sqrt(moved / norm) if norm else math.sqrt(moved)


def nothing_learnt(grad_norms: Sequence[float], moved: float) -> str | None:
    """Why a run with gradients of these norms, whose weights changed by `moved` of their norm, learnt nothing; None: it did."""
    if grad_norms and not any(grad_norms):
        return f"the gradient was 0 in all of {len(grad_norms)} updates: nothing was learnt"
    if moved < _LEAST:
        return f"the weights moved by {moved:.1g} of their norm in {len(grad_norms)} updates: nothing was learnt"
    return None


def _sampled(model: nn.Module) -> list[_Part]:
    with gathered(model), torch.no_grad():
        return [_spread(whole(weight)) for _, weight in trainable(model)]


def _spread(weight: Tensor) -> _Part:
    each = max(1, math.ceil(weight.numel() / _ELEMENTS))
    return _Part(weight.detach().flatten()[::each].cpu().clone(), each)
