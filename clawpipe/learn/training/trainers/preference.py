"""Jobs of preference pairs: packs of whole pairs, and a loss that is the mean over a step's pairs."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from clawpipe.learn.training.data.pairs import load_pairs, plan_pairs
from clawpipe.learn.training.losses.batch import PairObjective
from clawpipe.learn.training.request import TrainRequest
from clawpipe.learn.training.trainers.job import TrainingJob, vocabulary_of


def training_job(request: TrainRequest) -> TrainingJob:
    """Read recorded preference pairs to train on with the preference loss.

    Raises:
        DataError: no pair is left to train on.
    """
    config = request.config
    rows, filtered = load_pairs(request.samples, request.token_scores, request.temperature, vocabulary_of(request))
    plan = partial(plan_pairs, share=config.share_prefixes)
    return TrainingJob(rows, filtered, plan, PairObjective(config.dpo), rows_each=2)


def train_on_text(request: TrainRequest, work: Path, on_step: Callable[[dict[str, float]], None]) -> None:
    """Train on pairs that are text only; see clawpipe.learn.training.trainers.trl_dpo."""
    from clawpipe.learn.training.trainers import trl_dpo  # only this run needs TRL

    trl_dpo.train_on_text(request, work, on_step)
