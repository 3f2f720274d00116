"""The policy trainer: one policy loss over per-token streams. It knows no training method."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from clawpipe.config.training import Loss
from clawpipe.training.head import Scores
from clawpipe.training.losses import policy_loss
from clawpipe.training.packed import Batch, Metrics, PackedTrainer


class PolicyTrainer(PackedTrainer):
    """Trains a policy on samples with the streams that `policy_loss` reads; the loss is a mean over an optimiser update."""

    def __init__(self, *arguments: Any, loss: Loss, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._loss = loss

    def _size(self, batch: Batch) -> float:
        return len(batch["score"])

    def _summed_loss(self, scores: Scores, inputs: Batch) -> tuple[Tensor, Metrics]:
        index = inputs["score"]
        streams = (inputs["behaviour"], inputs["advantages"], inputs["rows"])
        per_token, metrics = policy_loss(scores.logprobs[index], *streams, self._loss)
        return (per_token * inputs["weights"]).sum(), metrics | {"entropy": scores.entropy[index].mean()}
