"""The learning rate of each optimizer step, along the whole night, and the moments that a round takes over from the one before."""

from __future__ import annotations

import math
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR, LRScheduler
from transformers import SchedulerType, Trainer, TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from clawpipe.core.config.training import Train
from clawpipe.learn.training.checkpoint.moments import load_moments
from clawpipe.learn.training.request import TrainRequest


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


def warmup_steps(config: Train, steps: int) -> int:
    """Return the optimizer steps of the warm-up, of a night with so many."""
    return config.warmup_steps or math.ceil(config.warmup_ratio * steps)


class Stretch(NamedTuple):
    """The part of a night's training that one round is.

    Each round has an equal share of the schedule, however many steps it takes: rounds find different numbers of rows, and a rate
    that falls along the night must not rise again because a later round is longer.

    Attributes:
        before: optimizer steps that the night's earlier rounds took.
        number: earlier rounds.
        rounds: planned rounds of the night.
        moments: directory of the optimizer's state after the earlier rounds; None: it starts with none.
    """

    before: int = 0
    number: int = 0
    rounds: int = 1
    moments: Path | None = None

    def rate_factor(self, step: int, steps: int, kind: str, warmup: int) -> float:
        """Return `rate_factor` of a step, counted from 0, of the `steps` of this round. Warm-up counts steps that were taken."""
        if (taken := self.before + step) < warmup:
            return rate_factor(taken, kind, warmup, warmup)
        return rate_factor(max(warmup, self.number * steps + step), kind, warmup, self.rounds * steps)


def stretch_of(request: TrainRequest) -> Stretch:
    number, rounds = (request.course.number, request.course.rounds) if request.course else (0, 1)
    return Stretch(request.steps_before, number, rounds, request.moments)


class TakesOver(TrainerCallback):
    """Gives the optimizer the moments of the night's earlier rounds; a resumed run has its own in its checkpoint."""

    def __init__(self, moments: Path) -> None:
        self._moments = moments

    def on_train_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        if state.global_step == 0:
            load_moments(self._moments, kwargs["model"], kwargs["optimizer"])


class InANight(Trainer):
    """Trains one round of a night: with `rate_factor` over the night's steps, and from the moments of the round before.

    transformers' own warm-ups take their first step at rate 0.
    """

    lr_scheduler: Any
    stretch = Stretch()

    def join(self, stretch: Stretch) -> None:
        """Make this the round of a night; call it before training."""
        self.stretch = stretch
        if stretch.moments is not None:
            self.add_callback(TakesOver(stretch.moments))

    def create_scheduler(self, num_training_steps: int, optimizer: Optimizer | None = None) -> LRScheduler:
        if self.lr_scheduler is None:
            warmup = self.args.get_warmup_steps(num_training_steps * self.stretch.rounds)
            settings = {"steps": num_training_steps, "kind": SchedulerType(self.args.lr_scheduler_type).value, "warmup": warmup}
            steps_on: Any = optimizer or self.optimizer
            self.lr_scheduler = LambdaLR(steps_on, partial(self.stretch.rate_factor, **settings))
            self._created_lr_scheduler = True
        return self.lr_scheduler
