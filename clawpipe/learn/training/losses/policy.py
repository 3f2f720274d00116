"""Losses on recorded tokens: pure functions over flat per-token tensors.

Notation, for token t of row s: `lp` is the log-prob under the policy being trained, `old` the behaviour policy's as it
was recorded, `prox` the proximal policy's (the policy at the start of the batch; `old` where none is given), `ref` the
reference policy's, A the advantage, sg() stops the gradient, and r = exp(lp - prox) is the importance ratio.

Sources: PPO (arXiv 1707.06347) with asymmetric clipping (DAPO, 2503.14476) and a dual clip (1912.09729); CISPO
(MiniMax-M1, 2506.13585); GSPO (2507.18071) for the ratio at sequence level; truncated importance sampling and IcePop for
the mismatch between the policy that sampled and the proximal one; off-policy sequence masking (DeepSeek-V3.2); the k3
estimator of the KL divergence (Schulman, "Approximating KL divergence"); the entropy bonus of A3C (1602.01783), -c H(p_t), over
the whole vocabulary at the temperature at which the token was sampled; the clipped value loss as in PPO's own code.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor

from clawpipe.core.config.training import Loss
from clawpipe.errors import ConfigError
from clawpipe.learn.training.losses.objectives import LOSSES

Metrics = dict[str, Tensor]
_LOG_RATIO_LIMIT = 20.0  # exp(20) = 4.9e8: far beyond any useful ratio, far below overflow
_LEAST_TAIL = 1e-6  # probability; rounding makes K log-probs of float32 sum to as much as this above 1


def policy_loss(
    logprobs: Tensor,
    behaviour: Tensor,
    advantages: Tensor,
    rows: Tensor,
    config: Loss,
    *,
    proximal: Tensor | None = None,
    reference: Tensor | None = None,
    entropy: Tensor | None = None,
) -> tuple[Tensor, Metrics]:
    """Return the loss of every trained token, and metrics over them.

    The order is: objective (with its clipping), weight of the behaviour mismatch, mask of stale rows, then the KL term and
    the entropy bonus, which are neither weighted nor masked. With `proximal` and neither `tis_cap` nor `icepop` the weight
    is 1: a decoupled loss without correction.

    Args:
        logprobs: float [N], log-prob in nats of each trained token, with gradient.
        behaviour: float [N], as recorded when the token was sampled.
        advantages: float [N].
        rows: int [N], which row a token belongs to; any numbering.
        config: the terms and their coefficients.
        proximal: float [N].
        reference: float [N].
        entropy: float [N], in nats, of the distribution under the policy that each token was taken from, with gradient where
            `entropy_coef` is above 0.

    Returns:
        loss per token [N] with gradient, and detached scalars: `*_min` and `*_max` are extremes, all others are means
        over the N tokens; `_adv_squared`, of the squared advantages, serves to make their deviation. Empty where N is 0.
        Ratio metrics are absent for `sft`, which uses no ratio.

    Raises:
        ConfigError: a term is switched on that lacks its input.
    """
    _check(config, proximal, reference)
    if not logprobs.numel():
        return logprobs, {}
    anchor = behaviour if proximal is None else proximal
    loss, metrics = _objective(logprobs, behaviour, anchor, advantages, rows, config)
    if proximal is not None:
        loss, more = _correct_mismatch(loss, proximal - behaviour, config)
        metrics |= more
    if config.opsm_delta is not None:
        loss, more = _mask_stale_rows(loss, behaviour - logprobs.detach(), advantages, rows, config.opsm_delta)
        metrics |= more
    if config.objective != "sft":
        metrics["policy_loss"] = loss.detach().mean()
    if reference is not None and config.kl_coef:
        divergence = _k3(reference - logprobs)
        loss, metrics["kl"] = loss + config.kl_coef * divergence, divergence.detach().mean()
    if entropy is not None:
        loss = loss - config.entropy_coef * entropy if config.entropy_coef else loss
        metrics["entropy"] = entropy.detach().mean()
    moments = {"adv_mean": advantages.double().mean(), "_adv_squared": advantages.double().square().mean()}
    return loss, metrics | {"lp": logprobs.detach().mean()} | moments


def topk_divergence(student: Tensor, teacher: Tensor) -> Tensor:
    """Return the reverse KL divergence, KL(student || teacher) in nats, over K tokens and one bin for the rest of the vocabulary.

    It is a loss, never an advantage: it does not depend on the token that was sampled, so as a detached factor of that
    token's log-prob its expected gradient is 0.

    Args:
        student: float [N, K], log-probs of K tokens at each position, with gradient.
        teacher: float [N, K], the teacher's of the same tokens.

    Returns:
        float [N], with gradient; at least 0 up to rounding.
    """
    student, teacher = _with_tail(student), _with_tail(teacher)
    return (student.exp() * (student - teacher)).sum(-1)


def value_loss(values: Tensor, old: Tensor, returns: Tensor, clip: float | None) -> Tensor:
    """Return max((V - R)^2, (clip(V, V_old - c, V_old + c) - R)^2) / 2 for each token [N]; (V - R)^2 / 2 if `clip` is None.

    Source: the clipped value loss of OpenAI's baselines (ppo2), not in the PPO paper.

    Args:
        values: float [N], V, the value head's present output, with gradient.
        old: float [N], V_old, its output when the returns were computed.
        returns: float [N], R, the targets.
        clip: c, the distance from V_old beyond which a value's approach to R lowers the loss no further.
    """
    error = (values - returns).square()
    if clip is not None:
        error = torch.maximum(error, (old + (values - old).clamp(-clip, clip) - returns).square())
    return error / 2


def _with_tail(logprobs: Tensor) -> Tensor:
    """Append log(1 - sum(exp)) to log-probs [N, K]: returns [N, K + 1]."""
    held = logprobs.logsumexp(-1, keepdim=True).clamp(max=-_LEAST_TAIL)
    return torch.cat([logprobs, torch.log(-torch.expm1(held))], dim=-1)


def _check(config: Loss, proximal: Tensor | None, reference: Tensor | None) -> None:
    if config.kl_coef and reference is None:
        raise ConfigError("a KL penalty needs the reference policy's log-probs", "train.loss.kl_coef", "set it to 0")
    for name in ("tis_cap", "icepop"):
        if getattr(config, name) is not None and proximal is None:
            raise ConfigError("this correction needs the proximal policy's log-probs", f"train.loss.{name}", "set it to null")


@dataclass(frozen=True)
class Tokens:
    """The N trained tokens that an objective is given; each tensor is [N].

    Attributes:
        logprobs: log-probs in nats under the policy being trained, with gradient.
        behaviour: log-probs as recorded when the tokens were sampled.
        ratio: importance ratios r, of tokens or of their rows as `loss.level` says, with gradient.
        advantages: advantages A.
        rows: int, the row that each token belongs to.
    """

    logprobs: Tensor
    behaviour: Tensor
    ratio: Tensor
    advantages: Tensor
    rows: Tensor


def ppo(tokens: Tokens, config: Loss) -> Tensor:
    """Return PPO's clipped loss [N] (arXiv 1707.06347): L = -min(r A, clip(r, 1 - clip_low, 1 + clip_high) A).

    With `dual_clip` c, where A < 0: min(L, -c A), which bounds the loss of large ratios (arXiv 1912.09729). The
    asymmetric bounds are DAPO's (arXiv 2503.14476).
    """
    clipped = tokens.ratio.clamp(1 - config.clip_low, 1 + config.clip_high)
    loss = -torch.minimum(tokens.ratio * tokens.advantages, clipped * tokens.advantages)
    if config.dual_clip is None:
        return loss
    return torch.where(tokens.advantages < 0, torch.minimum(loss, -config.dual_clip * tokens.advantages), loss)


def cispo(tokens: Tokens, config: Loss) -> Tensor:
    """Return CISPO's loss [N] (arXiv 2506.13585): -sg(min(r, 1 + clip_high)) A lp, with a gradient through lp alone."""
    return -tokens.ratio.detach().clamp(max=1 + config.clip_high) * tokens.advantages * tokens.logprobs


def reinforce(tokens: Tokens, config: Loss) -> Tensor:
    """Return the loss [N] of REINFORCE with importance weights: -sg(r) A lp, with a gradient through lp alone."""
    return -tokens.ratio.detach() * tokens.advantages * tokens.logprobs


def sft(tokens: Tokens, config: Loss) -> Tensor:
    """Return the negative log-likelihood [N]: -lp where A > 0, and 0 elsewhere. It uses no ratio."""
    return torch.where(tokens.advantages > 0, -tokens.logprobs, 0.0)


def _objective(
    logprobs: Tensor, behaviour: Tensor, anchor: Tensor, advantages: Tensor, rows: Tensor, config: Loss
) -> tuple[Tensor, Metrics]:
    if config.objective == "sft":
        return sft(Tokens(logprobs, behaviour, torch.ones_like(logprobs), advantages, rows), config), {}
    log_ratio = logprobs - anchor
    ratio = _exp(_row_mean(log_ratio, rows) if config.level == "sequence" else log_ratio)
    metrics = _ratio_metrics(ratio.detach(), advantages, config)
    metrics |= {"behav_lp": behaviour.mean(), "approx_kl": _k3(logprobs.detach() - behaviour).mean()}
    loss: Any = _load(config.objective)(Tokens(logprobs, behaviour, ratio, advantages, rows), config)
    if not isinstance(loss, Tensor) or loss.shape != logprobs.shape:
        found = list(loss.shape) if isinstance(loss, Tensor) else type(loss).__name__
        raise ConfigError(f"an objective returns one loss per token, {list(logprobs.shape)}, not {found}", config.objective)
    return loss, metrics


@cache
def _load(objective: str) -> Callable[[Tokens, Loss], Tensor]:
    return LOSSES.load(objective)


def _ratio_metrics(ratio: Tensor, advantages: Tensor, config: Loss) -> Metrics:
    clipped = ((ratio > 1 + config.clip_high) & (advantages > 0)) | ((ratio < 1 - config.clip_low) & (advantages < 0))
    return {
        "ratio_mean": ratio.mean(),
        "ratio_min": ratio.min(),
        "ratio_max": ratio.max(),
        "clip_frac": clipped.to(ratio.dtype).mean(),
    }


def _correct_mismatch(loss: Tensor, log_mismatch: Tensor, config: Loss) -> tuple[Tensor, Metrics]:
    """Weight the loss [N] of each token by w = exp(prox - old), without gradient.

    IcePop (arXiv 2510.18855): w where low <= w <= high, else 0. Truncated importance sampling (TIS; Ionides, J. Comput. Graph.
    Stat. 17 (2008) 295-311): min(w, tis_cap). Without either: 1.

    Args:
        loss: float [N], with gradient.
        log_mismatch: float [N], prox - old in nats.
    """
    weight = _exp(log_mismatch.detach())
    if config.icepop is not None:
        low, high = config.icepop
        kept = (weight >= low) & (weight <= high)
        return loss * torch.where(kept, weight, 0.0), {"icepop_frac": 1 - kept.to(loss.dtype).mean()}
    if config.tis_cap is not None:
        return loss * weight.clamp(max=config.tis_cap), {"tis_frac": (weight > config.tis_cap).to(loss.dtype).mean()}
    return loss, {}


def _mask_stale_rows(loss: Tensor, drift: Tensor, advantages: Tensor, rows: Tensor, limit: float) -> tuple[Tensor, Metrics]:
    """Set the loss [N] to 0 where A < 0 and the row's mean of old - lp exceeds `limit` nats per token (stale rows)."""
    stale = (advantages < 0) & (_row_mean(drift, rows) > limit)
    return torch.where(stale, 0.0, loss), {"opsm_drop": stale.to(loss.dtype).mean()}


def _row_mean(values: Tensor, rows: Tensor) -> Tensor:
    """Return for each token [N] the mean of `values` [N] over its row; the gradient flows through the mean."""
    _, index, count = rows.unique(return_inverse=True, return_counts=True)
    total = values.new_zeros(count.numel()).index_add(0, index, values)
    return (total / count)[index]


def _exp(log_ratio: Tensor) -> Tensor:
    return log_ratio.clamp(-_LOG_RATIO_LIMIT, _LOG_RATIO_LIMIT).exp()


def _k3(log_ratio: Tensor) -> Tensor:
    """Return exp(q) - q - 1, which is unbiased for KL(p || p') when q = log p' - log p of tokens sampled from p; never negative."""
    bounded = log_ratio.clamp(-_LOG_RATIO_LIMIT, _LOG_RATIO_LIMIT)
    return bounded.exp() - bounded - 1
