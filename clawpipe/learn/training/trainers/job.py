"""The job of a training request: its rows, and the functions that train on them.

Each method names a module of this room (`Method.trainer`), whose function `training_job` reads the rows and returns the job.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np

from clawpipe.core.config.training import Train
from clawpipe.learn.training.data.packing import Pack
from clawpipe.learn.training.data.samples import Readable, Sample
from clawpipe.learn.training.losses.batch import Objective
from clawpipe.learn.training.request import TrainRequest
from clawpipe.learn.training.trainers.base import PackedTrainer
from clawpipe.model.policy.layout import longest_at
from clawpipe.model.policy.vocabulary import vocabulary_size

Steps = list[dict[str, float]]


class Score(Protocol):
    """Computes log-probs of the rows' trained tokens, float32 [N] each, in nats at the row's temperature."""

    def __call__(self, rows: Sequence[Sample], *, reference: bool = False) -> list[np.ndarray]:
        """Return those under the policy that training starts from, or under the reference, which the night started from."""
        ...


def keep(rows: Sequence[Sample], score: Score) -> Sequence[Sample]:
    """Return the rows as they are."""
    return rows


def keep_rows(model: Any, rows: Sequence[Sample], packs: list[Pack]) -> Sequence[Sample]:
    """Return the rows as they are: their streams do not depend on the model."""
    return rows


def accept_any(steps: Steps) -> None:
    """Accept the metrics of any run."""


class TrainingJob(NamedTuple):
    """The rows to train on, and the functions that train on them.

    Attributes:
        rows: to train on.
        filtered: counts, by reason, of rows that cannot be trained on.
        plan: makes packs as `plan_packs` does, called with (rows, pack_tokens, optimizer steps, seed, epochs).
        objective: what is minimised.
        trainer: makes the trainer, called with the arguments of `PackedTrainer`.
        complete: completes or checks the rows, given log-probs that can be computed wherever the policy is.
        prepare: completes the rows' streams with what the untrained model says of them; `packs` hold each row once.
        check: raises if the metrics of the run's optimizer steps show that it cannot have been right.
        rows_each: rows that one row of the dataset became.
    """

    rows: Sequence[Sample]
    filtered: dict[str, int]
    plan: Callable[..., list[list[Pack]]]
    objective: Objective
    trainer: Callable[..., PackedTrainer] = PackedTrainer
    complete: Callable[[Sequence[Sample], Score], Sequence[Sample]] = keep
    prepare: Callable[[Any, Sequence[Sample], list[Pack]], Sequence[Sample]] = keep_rows
    check: Callable[[Steps], None] = accept_any
    rows_each: int = 1

    def steps_for(self, config: Train, rows: Sequence[Sample]) -> int:
        """Return the optimizer steps per epoch over the completed rows."""
        tokens = sum(len(row.trained) for row in rows[:: self.objective.one_in])
        return config.steps_for(len(rows) // self.rows_each, tokens)


def readable_of(request: TrainRequest) -> Readable:
    """Return what the base model can read, as far as the request wants it to."""
    base = Path(request.base)
    return Readable(vocabulary_size(base), min(longest_at(base), request.max_tokens or sys.maxsize))
