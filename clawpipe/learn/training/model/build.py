"""Build the model to train, and the arguments of its training loop, from the request."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from transformers import AutoConfig, TrainingArguments, set_seed

from clawpipe.core.config.quantization import SHARDABLE
from clawpipe.core.config.rates import rate_of
from clawpipe.errors import ConfigError
from clawpipe.learn.children.ranks import ranks
from clawpipe.learn.training.methods import require_trainable
from clawpipe.learn.training.model.adapter import attach_trainable, unfreeze
from clawpipe.learn.training.model.tree_attention import packs, use_packs
from clawpipe.learn.training.model.value_head import add_value_head
from clawpipe.learn.training.process.collectives import placement, shard_on_cpu_too, uses_fsdp
from clawpipe.learn.training.request import TrainRequest
from clawpipe.learn.training.trainers.optimizer import accumulate_in_float32
from clawpipe.model.policy.load import load_base, resolve_device


def build_model(request: TrainRequest) -> Any:
    """Build the policy with its trainable weights; the same request gives the same weights.

    Raises:
        ConfigError: the base cannot be trained in the dtype or quantization asked for.
    """
    config = request.config
    require_trainable(request.dtype)
    if request.threads:
        torch.set_num_threads(request.threads)
    set_seed(request.seed, deterministic=True)  # before the adapter draws its first weights
    # Filling each new tensor costs time and changes nothing here.
    torch.utils.deterministic.fill_uninitialized_memory = False  # pyright: ignore[reportAttributeAccessIssue]  # a property
    if uses_fsdp() and request.quantization not in SHARDABLE:
        raise ConfigError(
            f"a base loaded with quantization {request.quantization} cannot be sharded between processes",
            "runtime.accelerate",
            f"leave it out, or set model.quantization to {' or '.join(SHARDABLE)}",
        )
    place = torch.device("cpu") if uses_fsdp() else _device(request)  # FSDP distributes the weights later
    base = load_base(Path(request.base), request.dtype, place, quantization=request.quantization)
    use_packs(base, _device(request))
    if uses_fsdp() and not packs(base):
        raise ConfigError(
            "rows of this model are computed one by one, so processes that share its weights would wait for each other for ever",
            "runtime.accelerate",
            "leave it out",
        )
    whole = config.adapter == "full"
    model = unfreeze(base, request.init_adapter) if whole else attach_trainable(base, config.lora, request.init_adapter)
    if ranks().size == 1:  # the gradient buckets of DDP and FSDP have the weights' dtype
        accumulate_in_float32(model)
    if config.spec.critic:
        add_value_head(model, Path(request.init_adapter) if request.init_adapter else Path(request.base))
    _exclude_frozen_weights(model)
    return model


def _exclude_frozen_weights(model: nn.Module) -> None:
    """Exclude frozen weights from DDP's broadcast: every process has loaded the same ones, and torchao's cannot be sent."""
    frozen = [name for name, weight in model.named_parameters() if not weight.requires_grad]
    DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(model, frozen)  # pyright: ignore[reportPrivateUsage]


def training_arguments(request: TrainRequest, work: Path, packs_per_step: int) -> TrainingArguments:
    """Return arguments with which the loop trains each pack once, in order, and prints nothing.

    Args:
        packs_per_step: packs per optimizer step and process.
    """
    arguments = TrainingArguments(
        output_dir=str(work),
        seed=request.seed,
        **placement(_device(request).type),
        ddp_find_unused_parameters=False,  # every pack, even an empty one, gives each parameter a gradient
        per_device_train_batch_size=1,
        gradient_accumulation_steps=packs_per_step,
        num_train_epochs=1,  # the plan holds all epochs
        train_sampling_strategy="sequential",
        learning_rate=rate_of(request.config, width_of(request.base)),
        lr_scheduler_type=request.config.lr_scheduler_type,
        warmup_steps=request.config.warmup_steps or request.config.warmup_ratio,  # below 1: a share of the optimizer steps
        optim="adamw_torch",
        adam_beta1=request.config.adam_beta1,
        adam_beta2=request.config.adam_beta2,
        weight_decay=request.config.weight_decay,
        max_grad_norm=request.config.max_grad_norm,
        activation_checkpointing=request.config.gradient_checkpointing,
        activation_checkpointing_kwargs={"use_reentrant": False},  # LoRA's inputs have no gradient, which the other kind needs
        logging_steps=1,
        logging_nan_inf_filter=False,  # it would hide a loss that is not finite
        save_strategy="no",  # the SaveCheckpoints callback saves
        remove_unused_columns=False,
        dataloader_pin_memory=False,
        report_to="none",
        disable_tqdm=True,
    )
    shard_on_cpu_too(arguments)
    return arguments


def width_of(base: str) -> int:
    """Return the hidden size of the base in a directory, of which its config is enough."""
    return AutoConfig.from_pretrained(base, trust_remote_code=False).get_text_config().hidden_size


def _device(request: TrainRequest) -> torch.device:
    """Return the GPU of this process: the only visible one, or with several processes the one with the local rank's number."""
    device = resolve_device(request.device.partition(":")[0])
    return torch.device("cuda", ranks().local_rank) if device.type == "cuda" and ranks().size > 1 else device
