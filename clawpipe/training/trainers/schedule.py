"""The learning rate of each optimizer step."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR, LRScheduler
from transformers import SchedulerType, Trainer


def rate_factor(step: int, kind: str, warmup: int, steps: int) -> float:
    """Return the factor of the learning rate in optimizer step `step`, counted from 0, of `steps`.

    It rises as (step + 1) / (warmup + 1) over the warm-up, so that its first step trains, too; then it is 1, or falls from 1
    towards 0 as transformers' schedules do.

    Args:
        kind: constant, linear or cosine.
    """
    if step < warmup:
        return (step + 1) / (warmup + 1)
    done = min((step - warmup) / max(1, steps - warmup), 1.0)
    return {"constant": 1.0, "linear": 1.0 - done, "cosine": 0.5 * (1.0 + math.cos(math.pi * done))}[kind]


class SchedulesRate(Trainer):
    """Trains with `rate_factor`; transformers' warm-ups take their first step at rate 0."""

    lr_scheduler: Any

    def create_scheduler(self, num_training_steps: int, optimizer: Optimizer | None = None) -> LRScheduler:
        if self.lr_scheduler is None:
            kind, warmup = SchedulerType(self.args.lr_scheduler_type).value, self.args.get_warmup_steps(num_training_steps)
            factor = partial(rate_factor, kind=kind, warmup=warmup, steps=num_training_steps)
            steps_on: Any = optimizer or self.optimizer
            self.lr_scheduler = LambdaLR(steps_on, factor)
            self._created_lr_scheduler = True
        return self.lr_scheduler
