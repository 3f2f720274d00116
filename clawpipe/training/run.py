"""One training run from request to outcome."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from peft import PeftModel
from transformers import TrainingArguments, set_seed

from clawpipe import faults
from clawpipe.errors import TrainingError
from clawpipe.policy.load import load_base, resolve_device
from clawpipe.store.artifacts import fsync
from clawpipe.store.digests import sha256_file
from clawpipe.training.adapter import attach_trainable, save_adapter
from clawpipe.training.checkpoints import Checkpoints
from clawpipe.training.methods import loss_of
from clawpipe.training.packed import PackDataset
from clawpipe.training.packing import plan_packs
from clawpipe.training.request import ADAPTER, METRICS, SUMMARY, TrainRequest
from clawpipe.training.samples import load_samples
from clawpipe.training.trainer import PolicyTrainer

Steps = list[dict[str, float]]


def train(request: TrainRequest, work: Path, on_step: Callable[[dict[str, float]], None]) -> None:
    """Train, from the newest checkpoint in `work` that fits, and reveal the outcome directory at once, complete.

    Raises:
        ConfigError, DataError: nothing was trained.
        TrainingError: values were not finite too often, or recorded log-probs had no effect.
    """
    config, loss = request.config, loss_of(request.config)
    samples, set_aside = load_samples(request.samples, loss.objective, request.temperature)
    plan = plan_packs(samples, config.pack_tokens, config.updates, request.seed, config.epochs)
    checkpoints = Checkpoints(work / "checkpoints", request.identity())
    model = _model(request)
    trainer = PolicyTrainer(
        model,
        _arguments(request, work, len(plan[0])),
        PackDataset(samples, plan),
        checkpoints,
        config.checkpoint_seconds,
        on_step,
        loss=loss,
    )
    resume = checkpoints.latest_valid()
    trainer.train(resume_from_checkpoint=str(resume) if resume else None)
    steps = [entry for entry in trainer.state.log_history if "loss" in entry]
    if loss.objective != "sft":
        require_applied_ratios(steps)
    _reveal(request, model, steps, {"samples": len(samples), "set_aside": set_aside})
    checkpoints.clear()


def require_applied_ratios(steps: Steps) -> None:
    """Raise if no recorded log-prob ever differed from the policy's own.

    On stored tokens the two differ at least by rounding; exact equality everywhere means that the recorded ones were
    not used, and that what looks like a clipped loss is plain REINFORCE.

    Raises:
        TrainingError: every ratio of the run is exactly 1.
    """
    if all(step["ratio_min"] == step["ratio_max"] == 1.0 and step["approx_kl"] == 0.0 for step in steps if "ratio_min" in step):
        raise TrainingError(
            "every importance ratio is exactly 1: the recorded log-probs were ignored", fix="see where samples.logprobs come from"
        )


def _model(request: TrainRequest) -> PeftModel:
    if request.threads:
        torch.set_num_threads(request.threads)
    set_seed(request.seed, deterministic=True)  # before the adapter draws its first weights
    base = load_base(Path(request.base), request.dtype, _device(request))
    return attach_trainable(base, request.config.lora, request.init_adapter)


def _device(request: TrainRequest) -> torch.device:
    return resolve_device(request.device.partition(":")[0])  # this process sees one GPU, which is number 0


def _arguments(request: TrainRequest, work: Path, packs_per_update: int) -> TrainingArguments:
    """Arguments under which the loop trains each pack once, in order, and prints nothing."""
    return TrainingArguments(
        output_dir=str(work),
        seed=request.seed,
        use_cpu=_device(request).type == "cpu",
        per_device_train_batch_size=1,
        gradient_accumulation_steps=packs_per_update,
        num_train_epochs=1,  # the plan holds all epochs
        train_sampling_strategy="sequential",
        learning_rate=request.config.rate,
        lr_scheduler_type="constant",
        optim="adamw_torch",
        max_grad_norm=request.config.max_grad_norm,
        logging_steps=1,
        logging_nan_inf_filter=False,  # it would hide a loss that is not finite
        save_strategy="no",  # SaveByTime asks for checkpoints
        remove_unused_columns=False,
        dataloader_pin_memory=False,
        report_to="none",
        disable_tqdm=True,
    )


def _reveal(request: TrainRequest, model: PeftModel, steps: Steps, facts: dict[str, Any]) -> None:
    output = Path(request.output)
    staging = output.with_name(f".{output.name}.partial")
    shutil.rmtree(staging, ignore_errors=True)
    save_adapter(model, staging / ADAPTER, request.base_digest)
    files = {file.name: sha256_file(file) for file in sorted((staging / ADAPTER).iterdir())}
    facts |= {"identity": request.identity(), "files": files, "steps": len(steps), "last": steps[-1]}
    facts["nonfinite"] = sum(step["nonfinite"] for step in steps)
    (staging / METRICS).write_text("".join(json.dumps(step, sort_keys=True) + "\n" for step in steps))
    (staging / SUMMARY).write_text(json.dumps(facts, indent=2, sort_keys=True) + "\n")
    for path in [*staging.rglob("*"), staging]:
        fsync(path)
    faults.point("train.before_rename")
    shutil.rmtree(output, ignore_errors=True)
    os.replace(staging, output)
    fsync(output.parent)
