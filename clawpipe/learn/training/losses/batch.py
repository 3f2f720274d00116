"""The objectives of batches: what the trained tokens of several rows cost, given their log-probs, wherever these were computed.

A batch holds flat streams over the N trained tokens of its rows (`clawpipe.learn.training.data.packing`): `score`, the index of a
token's score, `rows`, the row that it belongs to, `weights`, and the streams that the method's loss reads.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from clawpipe.core.config.methods import Kto, Ppo
from clawpipe.core.config.training import Loss
from clawpipe.learn.training.losses.kto import kto_loss, reference_point, row_sums
from clawpipe.learn.training.losses.policy import policy_loss, topk_divergence, value_loss
from clawpipe.learn.training.model.scores import Scores

Batch = dict[str, Tensor]
Metrics = dict[str, Tensor]
PairLoss = Callable[[Tensor, Any, Tensor], tuple[Tensor, Metrics]]
"""Takes log-probs [N], those under the reference (None for a method without one) and the rows of the tokens, as `preference_loss`
does, and returns the loss of every pair [P] and metrics."""

_STREAMS = (  # that the loss of sampled tokens reads
    *("score", "rows", "behaviour", "advantages", "proximal", "reference", "distil", "top_teacher", "returns", "values"),
)


class Part(NamedTuple):
    """Metrics that are means over `number` tokens, rows or pairs."""

    metrics: Metrics
    number: int


class Objective(Protocol):
    """What a method minimises."""

    @property
    def learns_entropy(self) -> bool:
        """Whether it needs the gradient of the policy's entropy."""
        ...

    @property
    def one_in(self) -> int:
        """Of how many neighbouring rows the first one alone carries loss; 1: each row does."""
        ...

    def size(self, batch: Batch) -> float:
        """Return the batch's part of the number that a step's loss is divided by: its trained tokens, rows or pairs."""
        ...

    def summed(self, scores: Scores, batch: Batch) -> tuple[Tensor, list[Part]]:
        """Return the summed loss of a batch that is not empty, and its metrics."""
        ...

    def finish(self, metrics: dict[str, float]) -> dict[str, float]:
        """Return the metrics of an optimizer step, given the means over its batches."""
        ...


@dataclass
class PolicyObjective:
    """The policy loss on samples with the streams that it reads.

    Attributes:
        loss: of the policy.
        distil: factor of the divergence from the teacher's `top_teacher`, where the stream `distil` is 1.
        critic: settings of the value head's loss, if the model has one.
    """

    loss: Loss
    distil: float = 0.0
    critic: Ppo | None = None
    one_in: int = field(default=1, init=False)

    @property
    def learns_entropy(self) -> bool:
        return bool(self.loss.entropy_coef)

    def size(self, batch: Batch) -> float:
        if self.loss.normalise == "token":
            return len(batch["rows"])
        rows = int(batch["rows"].max()) + 1 if len(batch["rows"]) else 0
        return rows * (self.loss.normaliser or 1)

    def weights(self, batch: Batch) -> Tensor:
        """Return the factors [N] of the tokens' losses in the sum."""
        rows, weights = batch["rows"], batch["weights"]
        return weights / rows.bincount()[rows] if self.loss.normalise == "sequence" else weights

    def summed(self, scores: Scores, batch: Batch) -> tuple[Tensor, list[Part]]:
        per_token, parts = self._beside_imitation(scores, batch) if "imitated" in batch else self._terms(scores, batch)
        return (per_token * self.weights(batch)).sum(), parts

    def _beside_imitation(self, scores: Scores, batch: Batch) -> tuple[Tensor, list[Part]]:
        """Return the loss [N] of a batch with rows that no policy sampled: of their tokens it is the negative log-likelihood.

        Imitated tokens have a metric of their own; the others are means over the sampled ones.
        """
        imitated = batch["imitated"]
        sampled = {name: batch[name][~imitated] for name in _STREAMS if name in batch}
        per_token, parts = scores.logprobs.new_zeros(len(imitated)), [Part({}, 0)]
        if len(sampled["score"]):
            per_token[~imitated], parts = self._terms(scores, sampled)
        if imitated.any():
            per_token[imitated] = nll = -scores.logprobs[batch["score"][imitated]]
            parts = [*parts, Part({"imitated_nll": nll.detach().mean()}, len(nll))]
        return per_token, parts

    def _terms(self, scores: Scores, batch: Batch) -> tuple[Tensor, list[Part]]:
        """Return the loss [N] of tokens that a policy sampled, and metrics over them."""
        index = batch["score"]
        per_token, metrics = policy_loss(
            scores.logprobs[index],
            batch["behaviour"],
            batch["advantages"],
            batch["rows"],
            self.loss,
            proximal=batch.get("proximal"),
            reference=batch.get("reference"),
            entropy=None if scores.entropy is None else scores.entropy[index],
        )
        if "distil" in batch:
            metrics["hinted"] = batch["distil"].mean()
        if scores.top is not None:
            divergence = topk_divergence(scores.top[index], batch["top_teacher"]) * batch["distil"]
            per_token, metrics["distil_kl"] = per_token + self.distil * divergence, divergence.detach().mean()
        if scores.values is not None and self.critic is not None:
            critic, more = _critic_loss(scores.values[index], batch, self.critic)
            per_token, metrics = per_token + self.critic.value_coef * critic, metrics | more
        return per_token, [Part(metrics, len(index))]

    def finish(self, metrics: dict[str, float]) -> dict[str, float]:
        """Replace moments, which are means over batches, by the deviations and the explained variance that they give."""
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


def _critic_loss(values: Tensor, batch: Batch, config: Ppo) -> tuple[Tensor, Metrics]:
    returns = batch["returns"]
    loss = value_loss(values, batch["values"], returns, config.value_clip)
    with torch.no_grad():
        errors = (returns - values).double()
        moments = {"_returns": returns.double(), "_errors": errors}
        moments |= {f"{name}_squared": value.square() for name, value in moments.items()}
        return loss, {"value_loss": loss.mean()} | {name: value.mean() for name, value in moments.items()}


@dataclass
class PairObjective:
    """A loss of pairs on the rows of `clawpipe.learn.training.data.pairs`. All metrics are means over pairs.

    The reference policy's log-probs come with the rows as the stream `reference`: no second policy is held or run.
    """

    loss: PairLoss
    learns_entropy: bool = field(default=False, init=False)
    one_in: int = field(default=1, init=False)

    def size(self, batch: Batch) -> float:
        return _twos(batch)

    def summed(self, scores: Scores, batch: Batch) -> tuple[Tensor, list[Part]]:
        index, rows = batch["score"], batch["rows"]
        loss, metrics = self.loss(scores.logprobs[index], batch.get("reference"), rows)
        share = 1 / rows.bincount()[rows]  # of a token in its row
        weights = batch["weights"].new_zeros(2 * len(loss)).index_add(0, rows, batch["weights"] * share)
        if scores.entropy is not None:
            metrics["entropy"] = (scores.entropy[index] * share).sum() / (2 * len(loss))
        return (loss * weights[0::2]).sum(), [Part(metrics, _twos(batch))]

    def finish(self, metrics: dict[str, float]) -> dict[str, float]:
        return metrics


@dataclass
class KtoObjective:
    """The KTO loss on rows of which every second one is mismatched. Metrics are means over trajectories.

    Attributes:
        point: the reference point of the whole optimizer step; None: a batch is the whole step, and has all of its rows itself.
    """

    kto: Kto
    point: Tensor | None = None
    learns_entropy: bool = field(default=False, init=False)
    one_in: int = field(default=2, init=False)

    def size(self, batch: Batch) -> float:
        return _twos(batch)

    def summed(self, scores: Scores, batch: Batch) -> tuple[Tensor, list[Part]]:
        ratios, rows = log_ratios(scores, batch), batch["rows"]
        point = self.point
        if point is None:
            point = reference_point(ratios[1::2].sum(), torch.tensor(len(ratios) // 2))
        share = 1 / rows.bincount()[rows]  # of a token in its row
        labels, weights = (row_sums(batch[stream] * share, rows)[0::2] for stream in ("label", "weights"))
        loss, metrics = kto_loss(ratios[0::2], labels > 0, point, self.kto)
        if scores.entropy is not None:
            metrics["entropy"] = row_sums(scores.entropy[batch["score"]] * share, rows)[0::2].detach().mean()
        return (loss * weights).sum(), [Part(metrics, _twos(batch))]

    def finish(self, metrics: dict[str, float]) -> dict[str, float]:
        """Return rewards as means over the rows of their label; without such rows they are absent."""
        if "_chosen" in metrics:
            share = metrics.pop("_chosen")
            sums = {name: metrics.pop(f"_rewards_{name}") for name in ("chosen", "rejected")}
            shares = {"chosen": share, "rejected": 1 - share}
            metrics |= {f"rewards_{name}": sums[name] / shares[name] for name in sums if shares[name] > 0}
        if {"rewards_chosen", "rewards_rejected"} <= set(metrics):
            metrics["margin"] = metrics["rewards_chosen"] - metrics["rewards_rejected"]
        return metrics


def trained_tokens(objective: Objective, batch: Batch) -> int:
    """Return the number of a batch's tokens that carry loss."""
    return int((batch["rows"] % objective.one_in == 0).sum())


def log_ratios(scores: Scores, batch: Batch) -> Tensor:
    """Return the log-ratios [2R] of the rows to the reference in nats, summed over their trained tokens."""
    return row_sums(scores.logprobs[batch["score"]] - batch["reference"], batch["rows"])


def _twos(batch: Batch) -> int:
    """Return the number of pairs of rows, since each row has a trained token."""
    return (int(batch["rows"].max()) + 1) // 2 if len(batch["rows"]) else 0
