"""A frozen, quantized linear layer whose backward pass keeps its weights quantized.

It is apart from `clawpipe.model.policy.quantization`, whose checks run where torch is not loaded.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class FrozenLinear(torch.autograd.Function):
    """y = x W^T + b with the weights' own kernel; the backward pass keeps W quantized and dequantizes it again."""

    @staticmethod
    def forward(ctx: Any, hidden: Tensor, weight: Any, bias: Tensor | None) -> Tensor:
        ctx.weight = weight  # a tensor subclass, which autograd would save dequantized
        return F.linear(hidden, weight, bias)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        [gradient] = gradients
        return gradient @ ctx.weight.dequantize().to(gradient.dtype), None, None


def frozen_linear(module: nn.Linear, hidden: Tensor) -> Tensor:
    """Replacement for the forward of a layer whose frozen weights are a torchao tensor."""
    result: Any = FrozenLinear.apply(hidden, module.weight, module.bias)
    return result
