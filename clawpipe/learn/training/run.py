"""Run one training, from request to outcome."""

from __future__ import annotations

import gc
import shutil
import sys
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import torch

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.errors import BusyError
from clawpipe.learn.children.memory import ran_out
from clawpipe.learn.children.ranks import ranks
from clawpipe.learn.training.checkpoint.files import Checkpoints
from clawpipe.learn.training.checkpoint.state import Movement, commit, keep_snapshot
from clawpipe.learn.training.data.packing import Pack
from clawpipe.learn.training.data.samples import Sample
from clawpipe.learn.training.methods import require_token_scores
from clawpipe.learn.training.model.build import build_model, training_arguments
from clawpipe.learn.training.model.likelihoods import likelihoods
from clawpipe.learn.training.model.reference import reference_model
from clawpipe.learn.training.model.scoring_head import base_of
from clawpipe.learn.training.model.tree_attention import packs
from clawpipe.learn.training.process.collectives import broadcast_from_main, gathered_weights, pad_plan
from clawpipe.learn.training.request import TrainRequest
from clawpipe.learn.training.trainers.base import PackDataset, Rhythm
from clawpipe.learn.training.trainers.early_stopping import Limits, hold_out
from clawpipe.learn.training.trainers.job import TrainingJob
from clawpipe.learn.training.trainers.schedule import stretch_of
from clawpipe.learn.training.trainers.snapshots import KeepSnapshots

OnStep = Callable[[dict[str, float]], None]
_TRAINERS = "clawpipe.learn.training.trainers.*"  # a module for each kind of trainer, see `Method.trainer`
_NEED_LESS = (
    "set train.gradient_checkpointing, lower curation.max_tokens, quantize the base (model.quantization), or free "
    "memory; training resumes from its last checkpoint"
)


def train(request: TrainRequest, work: Path, on_step: OnStep) -> None:
    """Train, from the newest matching checkpoint in `work` if there is one, and commit the complete outcome directory.

    When memory runs out, packs are halved: an optimizer step then has more packs and the same gradient.

    Raises:
        ConfigError, DataError: nothing was trained.
        TrainingError: values were not finite too often, or recorded log-probs had no effect.
        BusyError: memory ran out with the smallest packs.
    """
    job = job_of(request)
    pack_tokens, tried = request.config.pack_tokens >> request.shrink, None
    while (packs := _single_step(job, job.rows, pack_tokens)) != tried:
        try:
            return _attempt(request, work, on_step, job, pack_tokens)
        except (RuntimeError, MemoryError) as error:
            if not ran_out(error) or ranks().size > 1:  # other processes wait for this one, so all have to restart
                raise
            print(f"memory ran out with packs of {pack_tokens} tokens: {error}", file=sys.stderr)
        _release()
        pack_tokens, tried = pack_tokens // 2, packs
    raise BusyError("memory ran out, even with one row per pack", f"packs of {pack_tokens} tokens", _NEED_LESS)


def job_of(request: TrainRequest) -> TrainingJob:
    """Return what the method's trainer makes of the request.

    Raises:
        ConfigError: the request lacks data that the method needs.
        DataError: no row remains to train on.
    """
    require_token_scores(request.config, bool(request.token_scores) or request.rendering is not None)  # those of text are computed
    return import_module(_TRAINERS.replace("*", request.config.spec.trainer)).training_job(request)


def _attempt(request: TrainRequest, work: Path, on_step: OnStep, job: TrainingJob, pack_tokens: int) -> None:
    config = request.config
    model = build_model(request)
    movement = Movement(model)
    if not packs(base_of(model)):  # common prefixes are then computed for each row
        job = job._replace(plan=partial(job.plan, share=False))
    rows = job.complete(job.rows, partial(score_rows, request, model))
    rows = job.prepare(model, rows, _single_step(job, rows, pack_tokens))
    rows, held_out = hold_out(rows, config.validation, request.seed) if config.validation else (rows, [])
    steps = job.steps_for(config, rows)
    plan = pad_plan(job.plan(rows, pack_tokens, steps, request.seed, config.epochs)[: config.max_steps], ranks().size)
    checkpoints = Checkpoints(work / "checkpoints", request.identity())
    trainer = job.trainer(
        model,
        training_arguments(request, work, len(plan[0]) // ranks().size),
        PackDataset(rows, plan, config.share_prefixes),
        checkpoints,
        Rhythm(config.checkpoint_seconds, config.checkpoint_steps),
        on_step,
        objective=job.objective,
        validation=_whole(job, held_out, pack_tokens, config.share_prefixes) if held_out else None,
        limits=Limits(config.max_kl, config.patience),
        stretch=stretch_of(request),
    )
    resume = broadcast_from_main(checkpoints.latest_valid)
    if resume is None and ranks().is_main:
        shutil.rmtree(request.snapshots, ignore_errors=True)  # of a run with other settings, data or code
    if config.probe_steps:
        trainer.add_callback(KeepSnapshots(config.probe_steps, partial(keep_snapshot, request, model)))
    trainer.train(resume_from_checkpoint=str(resume) if resume else None)
    job.check(trainer.steps)
    count, kept_out = len(rows) // job.rows_each, len(held_out) // job.rows_each
    filtered = job.filtered | ({"kept_for_validation": kept_out} if kept_out else {})
    summary: JsonObject = {"samples": count, "held_out": kept_out, "filtered": filtered, "stopped": trainer.stopped}
    summary["moved"] = movement.relative(model)
    if trainer.is_deepspeed_enabled:
        summary["moments_left"] = "DeepSpeed keeps AdamW's moments in buffers of its own: the next round starts without them"
    with gathered_weights(model):
        commit(request, model, trainer.steps, summary, None if trainer.is_deepspeed_enabled else trainer.optimizer)
    if ranks().is_main:
        checkpoints.clear()


def score_rows(request: TrainRequest, model: Any, rows: Sequence[Sample], *, reference: bool = False) -> list[np.ndarray]:
    """Return the log-probs of the rows' trained tokens under the model as it is, or under the reference."""
    model.eval()

    def scored() -> list[np.ndarray]:
        with reference_model(model, request) if reference else nullcontext(model) as scorer:
            return [row.logprobs for row in likelihoods(base_of(scorer.eval()), rows, request.config.pack_tokens)]

    return broadcast_from_main(scored)


def _single_step(job: TrainingJob, rows: Sequence[Sample], pack_tokens: int) -> list[Pack]:
    """Plan one optimizer step over all rows: packs that hold each row once."""
    return job.plan(rows, pack_tokens, 1, 0, 1)[0]


def _whole(job: TrainingJob, rows: Sequence[Sample], pack_tokens: int, share: bool) -> PackDataset:
    return PackDataset(rows, [_single_step(job, rows, pack_tokens)], share)


def _release() -> None:
    """Free the memory of the failed attempt; model and trainer refer to each other, so the collector has to run."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
