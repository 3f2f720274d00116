"""The preference trainer: packs of whole pairs, and a loss that is the mean over a step's pairs."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from torch import Tensor

from clawpipe.config.training import Dpo
from clawpipe.training.data.pairs import load_pairs, plan_pairs
from clawpipe.training.losses.preference import preference_loss
from clawpipe.training.model.scoring_head import Scores
from clawpipe.training.request import TrainRequest
from clawpipe.training.trainers.base import Batch, Metrics, PackedTrainer
from clawpipe.training.trainers.job import TrainingJob, vocabulary_of


def training_job(request: TrainRequest) -> TrainingJob:
    """Read recorded preference pairs to train on with the preference loss.

    Raises:
        DataError: no pair is left to train on.
    """
    config = request.config
    rows, filtered = load_pairs(request.samples, request.token_scores, request.temperature, vocabulary_of(request))
    plan, trainer = partial(plan_pairs, share=config.share_prefixes), partial(PreferenceTrainer, dpo=config.dpo)
    return TrainingJob(rows, filtered, plan, trainer, rows_each=2)


def train_on_text(request: TrainRequest, work: Path, on_step: Callable[[dict[str, float]], None]) -> None:
    """Train on pairs that are text only; see clawpipe.training.trainers.trl_dpo."""
    from clawpipe.training.trainers import trl_dpo  # only this run needs TRL

    trl_dpo.train_on_text(request, work, on_step)


class PreferenceTrainer(PackedTrainer):
    """Trains a policy on the rows of `clawpipe.training.data.pairs`, packed by `plan_pairs`.

    The reference policy's log-probs come with the rows as the stream `reference`: no second policy is held or run. All
    metrics are means over a step's pairs.
    """

    def __init__(self, *arguments: Any, dpo: Dpo, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._dpo = dpo

    def _size(self, batch: Batch) -> float:
        return self._count(batch)

    def _count(self, batch: Batch) -> int:
        """Return the number of pairs: half of the rows, since each row has a trained token."""
        return (int(batch["rows"].max()) + 1) // 2 if len(batch["rows"]) else 0

    def _summed_loss(self, scores: Scores, inputs: Batch) -> tuple[Tensor, Metrics]:
        index, rows = inputs["score"], inputs["rows"]
        loss, metrics = preference_loss(scores.logprobs[index], inputs["reference"], rows, self._dpo)
        share = 1 / rows.bincount()[rows]  # of a token in its row
        weights = inputs["weights"].new_zeros(2 * len(loss)).index_add(0, rows, inputs["weights"] * share)
        metrics["entropy"] = (scores.entropy[index] * share).sum() / (2 * len(loss))
        return (loss * weights[0::2]).sum(), metrics
