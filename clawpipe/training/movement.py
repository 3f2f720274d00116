"""How far training moved the weights, so that a run that learnt nothing can say so."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from clawpipe.training.distributed import gathered, whole
from clawpipe.training.state import trainable

_ELEMENTS = 1 << 20  # of a tensor; of a larger one evenly spread elements stand for all
_LEAST = torch.finfo(torch.float32).eps  # of the weights' norm: less is what rounding does


class Movement:
    """Holds trained weights as they are now, to compare them with later. All processes take part in both."""

    def __init__(self, model: nn.Module) -> None:
        self._before = _sampled(model)

    def relative(self, model: nn.Module) -> float:
        """Norm of the change of the trained weights over their norm before: what is written in the end, so in their own dtype.

        Of a tensor of more than a million elements a million are compared.
        """
        pairs = [(now.double(), before.double()) for now, before in zip(_sampled(model), self._before, strict=True)]
        moved = sum(float((now - before).square().sum()) for now, before in pairs)
        norm = sum(float(before.square().sum()) for _, before in pairs)
        return math.sqrt(moved / norm) if norm else math.sqrt(moved)


def nothing_learnt(grad_norms: Sequence[float], moved: float) -> str | None:
    """Why a run with gradients of these norms, whose weights changed by `moved` of their norm, learnt nothing; None: it did."""
    if grad_norms and not any(grad_norms):
        return f"the gradient was 0 in all of {len(grad_norms)} updates: nothing was learnt"
    if moved < _LEAST:
        return f"the weights moved by {moved:.1g} of their norm in {len(grad_norms)} updates: nothing was learnt"
    return None


def _sampled(model: nn.Module) -> list[Tensor]:
    with gathered(model), torch.no_grad():
        return [_spread(whole(weight)) for _, weight in trainable(model)]


def _spread(weight: Tensor) -> Tensor:
    return weight.detach().flatten()[:: max(1, math.ceil(weight.numel() / _ELEMENTS))].cpu().clone()
