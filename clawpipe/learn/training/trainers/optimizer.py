"""AdamW for weights that have fewer bits than float32.

A weight in bfloat16 has 8 bits of precision, so an update below 1/256 of it is rounded away, and at usual rates most are. The
steps are therefore taken on a float32 copy, the master weight, whose rounding the model holds, computes with and is saved as
(mixed precision training, arXiv 1710.03740, section 3.1). The moments are float32 as well.
"""

from __future__ import annotations

import os
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.adamw import AdamW, adamw
from transformers import Trainer, TrainingArguments


class MasterAdamW(AdamW):
    """torch's AdamW. Its state of a weight narrower than float32 has a `master` beside `exp_avg`, `exp_avg_sq` and `step`.

    One weight is updated at a time, so what is needed beside the state is as large as the largest of them.
    """

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            for weight in group["params"]:
                if weight.grad is not None:
                    self._update(weight, group)

    def _update(self, weight: nn.Parameter, group: dict[str, Any]) -> None:
        state = self.state[weight]
        if not state:
            state |= _fresh(weight)
        master = state.get("master", weight)
        first, second = group["betas"]
        adamw(
            [master],
            [weight.grad.float()],  # pyright: ignore[reportOptionalMemberAccess]  # it has one
            [state["exp_avg"]],
            [state["exp_avg_sq"]],
            [],
            [state["step"]],
            foreach=False,
            amsgrad=False,
            beta1=first,
            beta2=second,
            lr=group["lr"],
            weight_decay=group["weight_decay"],
            eps=group["eps"],
            maximize=False,
        )
        weight.copy_(master)


def _fresh(weight: Tensor) -> dict[str, Tensor]:
    master = weight.detach().to(torch.float32, copy=True)
    state = {"step": torch.tensor(0.0), "exp_avg": torch.zeros_like(master), "exp_avg_sq": torch.zeros_like(master)}
    return state | {"master": master} if _is_narrow(weight) else state


def _is_narrow(weight: Tensor) -> bool:
    return torch.finfo(weight.dtype).bits < 32


class KeepsMasterWeights(Trainer):
    """Trains with `MasterAdamW` if a trained weight has fewer bits than float32; DeepSpeed has an equivalent of its own."""

    @staticmethod
    def get_optimizer_cls_and_kwargs(args: TrainingArguments, model: Any = None) -> tuple[Any, Any]:
        kind, options = Trainer.get_optimizer_cls_and_kwargs(args, model)
        narrow = any(weight.requires_grad and _is_narrow(weight) for weight in model.parameters())
        own = os.environ.get("ACCELERATE_USE_DEEPSPEED", "false").lower() == "true"
        return (MasterAdamW if narrow and not own else kind), options


def accumulate_in_float32(model: nn.Module) -> None:
    """Let autograd add up the gradients of a step's packs in float32, whatever the weights' dtype.

    In bfloat16 a pack's share is rounded to 1/256 of the sum so far.
    """
    for weight in model.parameters():
        if weight.requires_grad:
            weight.grad_dtype = torch.float32
