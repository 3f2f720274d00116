"""Jobs of the policy loss: one loss over per-token streams, for every method on samples that learns from advantages."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from clawpipe.errors import TrainingError
from clawpipe.learn.training.data.packing import Pack, plan_packs
from clawpipe.learn.training.data.samples import Sample, load_samples
from clawpipe.learn.training.losses.batch import PolicyObjective
from clawpipe.learn.training.losses.gae import with_advantages
from clawpipe.learn.training.methods import loss_of, weights_of
from clawpipe.learn.training.model.likelihoods import require_likely_zeros
from clawpipe.learn.training.model.value_head import predict_values
from clawpipe.learn.training.process.collectives import broadcast_from_main
from clawpipe.learn.training.request import TrainRequest
from clawpipe.learn.training.trainers.job import Score, Steps, TrainingJob, readable_of


def training_job(request: TrainRequest) -> TrainingJob:
    """Read samples to train on with the policy loss, and with a critic where the method has one.

    Raises:
        DataError: no row is left to train on.
    """
    config, loss = request.config, loss_of(request.config)
    rows, filtered = load_samples(request.samples, config, request.temperature, request.token_scores, readable_of(request))
    critic = config.ppo if config.spec.critic else None
    job = TrainingJob(
        rows=rows,
        filtered=filtered,
        plan=partial(plan_packs, share=config.share_prefixes, whole=not config.spec.likelihood),
        objective=PolicyObjective(loss, weights_of(config)[1], critic),
    )
    if loss.objective == "sft":
        return job
    return job._replace(complete=_require_likely_zeros, prepare=partial(_with_critic, request), check=require_applied_ratios)


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


def _require_likely_zeros(rows: Sequence[Sample], score: Score) -> Sequence[Sample]:
    require_likely_zeros(rows, score)
    return rows


def _with_critic(request: TrainRequest, model: Any, rows: Sequence[Sample], packs: list[Pack]) -> Sequence[Sample]:
    if not request.config.spec.critic:
        return rows
    values = broadcast_from_main(lambda: predict_values(model, rows, packs, request.config.share_prefixes))
    return with_advantages(rows, values, request.config.ppo)
