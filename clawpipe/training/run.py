"""Run one training, from request to outcome."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch

from clawpipe.errors import BusyError, ConfigError, TrainingError
from clawpipe.policy.vocabulary import vocabulary_size
from clawpipe.training.checkpoint.files import Checkpoints
from clawpipe.training.checkpoint.state import Movement, commit
from clawpipe.training.data.packing import Pack, plan_packs
from clawpipe.training.data.pairs import are_text_only, load_pairs, plan_pairs
from clawpipe.training.data.samples import Sample, load_samples
from clawpipe.training.losses.gae import with_advantages
from clawpipe.training.methods import loss_of, require_token_scores, weights_of
from clawpipe.training.model.build import build_model, training_arguments
from clawpipe.training.model.likelihoods import require_likely_zeros
from clawpipe.training.model.scoring_head import base_of
from clawpipe.training.model.tree_attention import packs
from clawpipe.training.model.value_head import predict_values
from clawpipe.training.process.collectives import from_main, gathered, shard
from clawpipe.training.process.memory import ran_out
from clawpipe.training.process.ranks import ranks
from clawpipe.training.request import TrainRequest
from clawpipe.training.trainers.base import PackDataset, PackedTrainer, Rhythm
from clawpipe.training.trainers.early_stopping import Limits, hold_out
from clawpipe.training.trainers.policy import PolicyTrainer
from clawpipe.training.trainers.preference import PreferenceTrainer

Steps = list[dict[str, float]]
OnStep = Callable[[dict[str, float]], None]
_NEED_LESS = (
    "set train.gradient_checkpointing, lower curation.max_tokens, quantize the base (model.quantization), or free "
    "memory; training resumes from its last checkpoint"
)


class Job(NamedTuple):
    """The data and functions of a training run, which depend on the method.

    rows: rows to train on. set_aside: counts of filtered rows by reason. plan: like `plan_packs`, called with (rows,
    pack_tokens, updates, seed, epochs). trainer: called with the arguments of `PackedTrainer`. prepare: adds the rows' last
    streams, from the model and packs that hold each row once. check: raises if the steps' metrics cannot be right.
    rows_each: rows per row of the dataset.
    """

    rows: list[Sample]
    set_aside: dict[str, int]
    plan: Callable[..., list[list[Pack]]]
    trainer: Callable[..., PackedTrainer]
    prepare: Callable[[Any, list[Sample], list[Pack]], list[Sample]]
    check: Callable[[Steps], None]
    rows_each: int = 1


def train(request: TrainRequest, work: Path, on_step: OnStep) -> None:
    """Train, from the newest matching checkpoint in `work` if there is one, and commit the complete outcome directory.

    When memory runs out, packs are halved: an optimizer step then has more packs and the same gradient.

    Raises:
        ConfigError, DataError: nothing was trained.
        TrainingError: values were not finite too often, or recorded log-probs had no effect.
        BusyError: memory ran out with the smallest packs.
    """
    if request.config.kind.pairs and are_text_only(request.samples):
        from clawpipe.training.trainers.trl_dpo import train_on_text  # only this run needs TRL

        if ranks().size > 1:
            raise ConfigError("pairs that are text only are trained in one process", "runtime.train_processes", "set it to 1")
        return train_on_text(request, work, on_step)
    job = job_of(request)
    pack_tokens, tried = request.config.pack_tokens >> request.shrink, None
    while (update := _single_update(job, job.rows, pack_tokens)) != tried:
        try:
            return _attempt(request, work, on_step, job, pack_tokens)
        except (RuntimeError, MemoryError) as error:
            if not ran_out(error) or ranks().size > 1:  # other processes wait for this one, so all have to restart
                raise
            print(f"memory ran out with packs of {pack_tokens} tokens: {error}", file=sys.stderr)
        _release()
        pack_tokens, tried = pack_tokens // 2, update
    raise BusyError("memory ran out, even with one row a pack", f"packs of {pack_tokens} tokens", _NEED_LESS)


def job_of(request: TrainRequest) -> Job:
    """Load the data of the request's method, and return it with the method's trainer.

    Raises:
        ConfigError: the request lacks data that the method needs.
        DataError: no row remains to train on.
    """
    require_token_scores(request.config, bool(request.token_scores))
    return _preference_job(request) if request.config.kind.pairs else _policy_job(request)


def _policy_job(request: TrainRequest) -> Job:
    config, loss = request.config, loss_of(request.config)
    rows, set_aside = load_samples(request.samples, config, request.temperature, request.token_scores, _vocabulary(request))
    critic = config.ppo if config.kind.critic else None
    return Job(
        rows=rows,
        set_aside=set_aside,
        plan=partial(plan_packs, share=config.share_prefixes),
        trainer=partial(PolicyTrainer, loss=loss, distil=weights_of(config)[1], critic=critic),
        prepare=_unchanged if loss.objective == "sft" else partial(_with_likely_zeros, request),
        check=_nothing_to_check if loss.objective == "sft" else require_applied_ratios,
    )


def _preference_job(request: TrainRequest) -> Job:
    config = request.config
    rows, set_aside = load_pairs(request.samples, request.token_scores, request.temperature, _vocabulary(request))
    plan = partial(plan_pairs, share=config.share_prefixes)
    trainer = partial(PreferenceTrainer, dpo=config.dpo)
    return Job(rows, set_aside, plan, trainer, _unchanged, _nothing_to_check, rows_each=2)


def _attempt(request: TrainRequest, work: Path, on_step: OnStep, job: Job, pack_tokens: int) -> None:
    config = request.config
    model = build_model(request)
    movement = Movement(model)
    if not packs(base_of(model)):  # common prefixes are then computed for each row
        job = job._replace(plan=partial(job.plan, share=False))
    rows = job.prepare(model, job.rows, _single_update(job, job.rows, pack_tokens))
    rows, held_out = hold_out(rows, config.validation, request.seed) if config.validation else (rows, [])
    updates = config.steps_for(len(rows) // job.rows_each, sum(len(row.trained) for row in rows))
    plan = shard(job.plan(rows, pack_tokens, updates, request.seed, config.epochs)[: config.max_steps], ranks().size)
    checkpoints = Checkpoints(work / "checkpoints", request.identity())
    trainer = job.trainer(
        model,
        training_arguments(request, work, len(plan[0]) // ranks().size),
        PackDataset(rows, plan, config.share_prefixes),
        checkpoints,
        Rhythm(config.checkpoint_seconds, config.checkpoint_steps),
        on_step,
        validation=_whole(job, held_out, pack_tokens, config.share_prefixes) if held_out else None,
        limits=Limits(config.max_kl, config.patience),
    )
    resume = from_main(checkpoints.latest_valid)
    trainer.train(resume_from_checkpoint=str(resume) if resume else None)
    job.check(trainer.steps)
    count, kept_out = len(rows) // job.rows_each, len(held_out) // job.rows_each
    set_aside = job.set_aside | ({"kept_for_validation": kept_out} if kept_out else {})
    summary = {"samples": count, "held_out": kept_out, "set_aside": set_aside, "stopped": trainer.stopped}
    summary["moved"] = movement.relative(model)
    with gathered(model):
        commit(request, model, trainer.steps, summary)
    if ranks().is_main:
        checkpoints.clear()


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


def _vocabulary(request: TrainRequest) -> int:
    return vocabulary_size(Path(request.base))


def _single_update(job: Job, rows: list[Sample], pack_tokens: int) -> list[Pack]:
    """Plan one optimizer step over all rows: packs that hold each row once."""
    return job.plan(rows, pack_tokens, 1, 0, 1)[0]


def _whole(job: Job, rows: list[Sample], pack_tokens: int, share: bool) -> PackDataset:
    return PackDataset(rows, [_single_update(job, rows, pack_tokens)], share)


def _with_likely_zeros(request: TrainRequest, model: Any, rows: list[Sample], packs: list[Pack]) -> list[Sample]:
    require_likely_zeros(model, rows, request.config.pack_tokens)
    return _with_critic(request, model, rows, packs) if request.config.kind.critic else rows


def _with_critic(request: TrainRequest, model: Any, rows: list[Sample], packs: list[Pack]) -> list[Sample]:
    values = from_main(lambda: predict_values(model, rows, packs, request.config.share_prefixes))
    return with_advantages(rows, values, request.config.ppo)


def _unchanged(model: Any, rows: list[Sample], packs: list[Pack]) -> list[Sample]:
    return rows


def _nothing_to_check(steps: Steps) -> None:
    pass


def _release() -> None:
    """Free the memory of the failed attempt; model and trainer refer to each other, so the collector has to run."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
