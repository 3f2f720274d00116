"""The policy trainer: one loss over per-token streams. It knows no training method, only which streams are there."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from clawpipe.config.training import Loss, Ppo
from clawpipe.training.losses.policy import policy_loss, topk_divergence, value_loss
from clawpipe.training.model.scoring_head import Scores, learn_entropy
from clawpipe.training.trainers.base import Batch, Metrics, PackedTrainer


class PolicyTrainer(PackedTrainer):
    """Trains a policy on samples with the streams that its losses read.

    Args:
        loss: of the policy.
        distil: factor of the divergence from the teacher's `top_teacher`, where `distil` is 1.
        critic: settings of the value head's loss, if the model has one.
    """

    def __init__(self, *arguments: Any, loss: Loss, distil: float = 0.0, critic: Ppo | None = None, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._loss, self._distil, self._critic = loss, distil, critic
        if loss.entropy_coef:
            learn_entropy(self.model)

    def _size(self, batch: Batch) -> float:
        if self._loss.normalise == "token":
            return len(batch["rows"])
        rows = int(batch["rows"].max()) + 1 if len(batch["rows"]) else 0
        return rows * (self._loss.normaliser or 1)

    def _summed_loss(self, scores: Scores, inputs: Batch) -> tuple[Tensor, Metrics]:
        index, rows = inputs["score"], inputs["rows"]
        per_token, metrics = policy_loss(
            scores.logprobs[index],
            inputs["behaviour"],
            inputs["advantages"],
            rows,
            self._loss,
            proximal=inputs.get("proximal"),
            reference=inputs.get("reference"),
            entropy=scores.entropy[index],
        )
        if "distil" in inputs:
            metrics["hinted"] = inputs["distil"].mean()
        if scores.top is not None:
            divergence = topk_divergence(scores.top[index], inputs["top_teacher"]) * inputs["distil"]
            per_token, metrics["distil_kl"] = per_token + self._distil * divergence, divergence.detach().mean()
        if scores.values is not None and self._critic is not None:
            critic, more = _critic_loss(scores.values[index], inputs, self._critic)
            per_token, metrics = per_token + self._critic.value_coef * critic, metrics | more
        weights = inputs["weights"]
        if self._loss.normalise == "sequence":
            weights = weights / rows.bincount()[rows]
        return (per_token * weights).sum(), metrics

    def _finish(self, facts: dict[str, float]) -> dict[str, float]:
        """Deviations and explained variance are no means over packs: they are made of moments that are."""
        if "_adv_squared" in facts:
            facts["adv_std"] = math.sqrt(max(facts.pop("_adv_squared") - facts["adv_mean"] ** 2, 0.0))
            if facts["adv_mean"] == facts["adv_std"] == 0:  # no row has an advantage: there is no such part of the loss
                facts.pop("policy_loss", None)
        if "_returns" in facts:
            facts |= _explained(facts)
        return facts


def _explained(facts: dict[str, float]) -> dict[str, float]:
    """What the critic explains, for the four moments that it takes out of `facts`."""
    moments = {name: facts.pop(name) for name in ("_returns", "_returns_squared", "_errors", "_errors_squared")}
    variance = moments["_returns_squared"] - moments["_returns"] ** 2
    unexplained = moments["_errors_squared"] - moments["_errors"] ** 2
    return {"return_mean": moments["_returns"]} | ({"explained_variance": 1 - unexplained / variance} if variance > 0 else {})


def _critic_loss(values: Tensor, inputs: Batch, config: Ppo) -> tuple[Tensor, Metrics]:
    returns = inputs["returns"]
    loss = value_loss(values, inputs["values"], returns, config.value_clip)
    with torch.no_grad():
        errors = (returns - values).double()
        moments = {"_returns": returns.double(), "_errors": errors}
        moments |= {f"{name}_squared": value.square() for name, value in moments.items()}
        return loss, {"value_loss": loss.mean()} | {name: value.mean() for name, value in moments.items()}
