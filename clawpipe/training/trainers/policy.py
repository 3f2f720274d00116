"""The policy trainer: one loss over per-token streams, for every method on samples that learns from advantages."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import torch
from torch import Tensor

from clawpipe.config.training import Loss, Ppo
from clawpipe.errors import TrainingError
from clawpipe.training.data.packing import Pack, plan_packs
from clawpipe.training.data.samples import Sample, load_samples
from clawpipe.training.losses.gae import with_advantages
from clawpipe.training.losses.policy import policy_loss, topk_divergence, value_loss
from clawpipe.training.methods import loss_of, weights_of
from clawpipe.training.model.likelihoods import require_likely_zeros
from clawpipe.training.model.scoring_head import Scores, learn_entropy
from clawpipe.training.model.value_head import predict_values
from clawpipe.training.process.collectives import broadcast_from_main
from clawpipe.training.request import TrainRequest
from clawpipe.training.trainers.base import Batch, Metrics, PackedTrainer
from clawpipe.training.trainers.job import Steps, TrainingJob, vocabulary_of

_STREAMS = (  # of a pack, that the loss of sampled tokens reads
    *("score", "rows", "behaviour", "advantages", "proximal", "reference", "distil", "top_teacher", "returns", "values"),
)


def training_job(request: TrainRequest) -> TrainingJob:
    """Read samples to train on with the policy loss, and with a critic where the method has one.

    Raises:
        DataError: no row is left to train on.
    """
    config, loss = request.config, loss_of(request.config)
    rows, filtered = load_samples(request.samples, config, request.temperature, request.token_scores, vocabulary_of(request))
    critic = config.ppo if config.spec.critic else None
    job = TrainingJob(
        rows=rows,
        filtered=filtered,
        plan=partial(plan_packs, share=config.share_prefixes),
        trainer=partial(PolicyTrainer, loss=loss, distil=weights_of(config)[1], critic=critic),
    )
    if loss.objective == "sft":
        return job
    return job._replace(prepare=partial(_with_likely_zeros, request), check=require_applied_ratios)


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

    def _count(self, batch: Batch) -> int:
        """Return the number of tokens that a policy sampled: imitated ones have a metric of their own."""
        return len(batch["score"]) - int(batch["imitated"].sum()) if "imitated" in batch else len(batch["score"])

    def _summed_loss(self, scores: Scores, inputs: Batch) -> tuple[Tensor, Metrics]:
        rows, weights = inputs["rows"], inputs["weights"]
        per_token, metrics = self._beside_imitation(scores, inputs) if "imitated" in inputs else self._terms(scores, inputs)
        if self._loss.normalise == "sequence":
            weights = weights / rows.bincount()[rows]
        return (per_token * weights).sum(), metrics

    def _beside_imitation(self, scores: Scores, inputs: Batch) -> tuple[Tensor, Metrics]:
        """Return the loss [N] of a pack with rows that no policy sampled: of their tokens it is the negative log-likelihood."""
        imitated = inputs["imitated"]
        sampled = {name: inputs[name][~imitated] for name in _STREAMS if name in inputs}
        per_token, metrics = scores.logprobs.new_zeros(len(imitated)), {}
        if imitated.any():
            per_token[imitated] = nll = -scores.logprobs[inputs["score"][imitated]]
            self._accumulator.add({"imitated_nll": nll.detach().mean()}, len(nll), 0, 0)
        if len(sampled["score"]):
            per_token[~imitated], metrics = self._terms(scores, sampled)
        return per_token, metrics

    def _terms(self, scores: Scores, inputs: Batch) -> tuple[Tensor, Metrics]:
        """Return the loss [N] of tokens that a policy sampled, and metrics over them; `inputs` are their streams."""
        index = inputs["score"]
        per_token, metrics = policy_loss(
            scores.logprobs[index],
            inputs["behaviour"],
            inputs["advantages"],
            inputs["rows"],
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
        return per_token, metrics

    def _finish(self, metrics: dict[str, float]) -> dict[str, float]:
        """Replace moments, which are means over packs, by the deviations and the explained variance that they give."""
        if "_adv_squared" in metrics:
            metrics["adv_std"] = math.sqrt(max(metrics.pop("_adv_squared") - metrics["adv_mean"] ** 2, 0.0))
            if metrics["adv_mean"] == metrics["adv_std"] == 0:  # no row has an advantage: there is no such part of the loss
                metrics.pop("policy_loss", None)
        if "_returns" in metrics:
            metrics |= _explained(metrics)
        return metrics


def _explained(metrics: dict[str, float]) -> dict[str, float]:
    """Remove four moments from `metrics`, and return the mean return and the variance that the critic explains."""
    moments = {name: metrics.pop(name) for name in ("_returns", "_returns_squared", "_errors", "_errors_squared")}
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


def require_applied_ratios(steps: Steps) -> None:
    """Raise if no recorded log-prob ever differed from the policy's.

    On stored tokens the two differ at least by rounding; exact equality everywhere means that the recorded ones were
    not used, and that the clipped loss is plain REINFORCE.

    Raises:
        TrainingError: every ratio of the run is exactly 1.
    """
    known = [step for step in steps if "ratio_min" in step]
    if known and all(step["ratio_min"] == step["ratio_max"] == 1.0 and step["approx_kl"] == 0.0 for step in known):
        raise TrainingError(
            "every importance ratio is exactly 1: the recorded log-probs were ignored",
            "samples.logprobs",
            "they must come from the engine that sampled; rows without them can be trained on with train.method: sft",
        )


def _with_likely_zeros(request: TrainRequest, model: Any, rows: list[Sample], packs: list[Pack]) -> list[Sample]:
    require_likely_zeros(model, rows, request.config.pack_tokens)
    return _with_critic(request, model, rows, packs) if request.config.spec.critic else rows


def _with_critic(request: TrainRequest, model: Any, rows: list[Sample], packs: list[Pack]) -> list[Sample]:
    values = broadcast_from_main(lambda: predict_values(model, rows, packs, request.config.share_prefixes))
    return with_advantages(rows, values, request.config.ppo)
