"""A linear layer whose weights are neither trained nor held in full."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor


class FrozenLinear(torch.autograd.Function):
    """y = x W^T + b by the weights' own kernel; for the backward pass W is kept as it is held and dequantised again."""

    @staticmethod
    def forward(ctx: Any, hidden: Tensor, weight: Any, bias: Tensor | None) -> Tensor:
        ctx.weight = weight  # a tensor subclass: autograd would save what it unpacks to
        return F.linear(hidden, weight, bias)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        [gradient] = gradients
        return gradient @ ctx.weight.dequantize().to(gradient.dtype), None, None
