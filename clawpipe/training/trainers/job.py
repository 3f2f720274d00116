"""The job of a training request: its rows, and the functions that train on them.

Each method names a module of this room (`Method.trainer`), whose function `training_job` reads the rows and returns the job. One
that can train on preference pairs that are text only says so by a function `train_on_text`.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from clawpipe.policy.vocabulary import vocabulary_size
from clawpipe.training.data.packing import Pack
from clawpipe.training.data.samples import Sample
from clawpipe.training.request import TrainRequest
from clawpipe.training.trainers.base import PackedTrainer

Steps = list[dict[str, float]]


def keep_rows(model: Any, rows: list[Sample], packs: list[Pack]) -> list[Sample]:
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
        trainer: makes the trainer, called with the arguments of `PackedTrainer`.
        prepare: completes the rows' streams with what the untrained model says of them; `packs` hold each row once.
        check: raises if the metrics of the run's optimizer steps show that it cannot have been right.
        rows_each: rows that one row of the dataset became.
    """

    rows: list[Sample]
    filtered: dict[str, int]
    plan: Callable[..., list[list[Pack]]]
    trainer: Callable[..., PackedTrainer]
    prepare: Callable[[Any, list[Sample], list[Pack]], list[Sample]] = keep_rows
    check: Callable[[Steps], None] = accept_any
    rows_each: int = 1


def vocabulary_of(request: TrainRequest) -> int:
    """Return how many token ids the base model can read."""
    return vocabulary_size(Path(request.base))
