"""Which of a step's losses a service that speaks Tinker's API has by a name of its own.

Its losses are sums over tokens (r = exp(lp - old), A the advantage); each is linear in A or in its weights w, which therefore hold
the weights of the tokens and what the step's loss is divided by:

    cross_entropy          -w lp
    importance_sampling    -r A
    ppo                    -min(r A, clip(r, low, high) A)
    cispo                  -sg(clip(r, low, high)) A lp
"""

from __future__ import annotations

from torch import Tensor

from clawpipe.core.config.training import Loss
from clawpipe.learn.training.losses.batch import Batch, Objective, PolicyObjective
from clawpipe.learn.training.remote.session import NamedLoss


def named_loss(objective: Objective, batch: Batch, size: float) -> NamedLoss | None:
    """Return the step's loss as the service has it; None where it has none that is exactly the same, up to a constant.

    Args:
        batch: all rows of the step.
        size: what the sum over the step is divided by.
    """
    if not isinstance(objective, PolicyObjective) or "imitated" in batch:
        return None
    weights = objective.weights(batch) / size
    if objective.loss.objective == "sft":
        return (
            NamedLoss("cross_entropy", {}, {"weights": weights * (batch["advantages"] > 0)}) if _is_plain(objective.loss) else None
        )
    return _with_ratios(objective.loss, batch, weights)


def _with_ratios(loss: Loss, batch: Batch, weights: Tensor) -> NamedLoss | None:
    config = _config(loss)
    if config is None or not _is_plain(loss) or loss.level == "sequence" or {"proximal", "top_teacher"} & set(batch):
        return None
    name, bounds = config
    return NamedLoss(name, bounds, {"logprobs": batch["behaviour"], "advantages": batch["advantages"] * weights})


def _is_plain(loss: Loss) -> bool:
    """Whether the loss has no terms beside its objective."""
    return not loss.kl_coef and not loss.entropy_coef and loss.opsm_delta is None


def _config(loss: Loss) -> tuple[str, dict[str, float]] | None:
    match loss.objective:
        case "ppo" if loss.dual_clip is None:
            return "ppo", {"clip_low_threshold": 1 - loss.clip_low, "clip_high_threshold": 1 + loss.clip_high}
        case "cispo":
            return "cispo", {"clip_low_threshold": 0.0, "clip_high_threshold": 1 + loss.clip_high}
        case "reinforce":
            return "importance_sampling", {}
        case _:
            return None
