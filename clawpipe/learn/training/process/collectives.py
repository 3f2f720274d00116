"""Collective operations of a run's processes, under DDP and FSDP2. With one process they do nothing."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import torch
from accelerate import DistributedType, PartialState
from torch import Tensor, distributed, nn
from torch.distributed.tensor import DTensor, distribute_tensor
from transformers import TrainingArguments

from clawpipe.core.basics.json_types import Options
from clawpipe.errors import ConfigError
from clawpipe.learn.children.ranks import ranks
from clawpipe.learn.training.data.packing import Pack
from clawpipe.model.policy.load import resolve_device

Value = TypeVar("Value")


def join(device: str) -> None:
    """Join the process group; afterwards `cuda` is the GPU of this process.

    Args:
        device: the setting runtime.device.

    Raises:
        ConfigError: this machine has fewer GPUs than processes, or the setting names one GPU for all.
    """
    here = ranks()
    if here.size == 1:
        return
    if ":" in device:
        raise ConfigError(f"{device} is one GPU, for {here.size} processes", "runtime.device", "set it to cuda")
    kind = resolve_device(device).type
    if kind == "cuda":
        if torch.cuda.device_count() < here.local_size:
            raise ConfigError(
                f"{here.local_size} training processes on this machine, and {torch.cuda.device_count()} GPUs",
                "runtime.train_processes",
                "use at most one process per GPU",
            )
        torch.cuda.set_device(here.local_rank)
    distributed.init_process_group("gloo" if kind == "cpu" else "cpu:gloo,cuda:nccl")


def leave() -> None:
    """Wait for all processes, then leave the process group."""
    if distributed.is_initialized():
        distributed.barrier()
        distributed.destroy_process_group()


def uses_fsdp() -> bool:
    """Return whether the accelerate config asks for FSDP."""
    return os.environ.get("ACCELERATE_USE_FSDP", "false").lower() == "true"


def placement(kind: str) -> Options:
    """Return arguments of `TrainingArguments` for a device. With `use_cpu`, accelerate 1.15 would not look for DeepSpeed."""
    if kind == "cpu" and os.environ.get("ACCELERATE_USE_DEEPSPEED", "false").lower() == "true":
        return {"ddp_backend": "gloo"}
    return {"use_cpu": kind == "cpu"}


def shard_on_cpu_too(arguments: TrainingArguments) -> None:
    """Let FSDP shard on a CPU: accelerate 1.15 looks for FSDP on accelerators only, and would replicate silently."""
    if uses_fsdp() and arguments.device.type == "cpu":
        PartialState._shared_state["distributed_type"] = DistributedType.MULTI_GPU  # pyright: ignore[reportPrivateUsage]


def pad_plan(plan: Sequence[Sequence[Pack]], processes: int) -> list[list[Pack]]:
    """Return the plan with empty packs at the end of each optimizer step, so that the processes, which take packs in turn, get
    equally many."""
    return [[*packs, *([[]] * (-len(packs) % processes))] for packs in plan]


def barrier() -> None:
    """Wait until all processes have called this."""
    if distributed.is_initialized():
        distributed.barrier()


def broadcast_from_main(make: Callable[[], Value]) -> Value:
    """Return to every process what `make` returns in the main process."""
    if not distributed.is_initialized():
        return make()
    box: list[Any] = [make() if ranks().is_main else None]
    distributed.broadcast_object_list(box)
    return box[0]


def all_gather(value: Value) -> list[Value]:
    """Return the value of every process, by rank."""
    if not distributed.is_initialized():
        return [value]
    values: list[Any] = [None] * distributed.get_world_size()
    distributed.all_gather_object(values, value)
    return values


# ---- tensors that are sharded over the processes


def local_part(tensor: Tensor) -> Tensor:
    """Return this process's part of a tensor."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def full_tensor(tensor: Tensor) -> Tensor:
    """Return the whole tensor. Every process has to call it."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def as_held(tensor: Tensor, like: Tensor) -> Tensor:
    """Return `tensor`, whole in every process, sharded like `like`."""
    if not isinstance(like, DTensor):
        return tensor.to(like.device)
    return distribute_tensor(tensor.to(like.device), like.device_mesh, like.placements, src_data_rank=None)


def gather_on_main(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return all tensors whole, on the CPU, in the main process, and nothing in others. Every process has to call it."""
    collected = {}
    for name, tensor in tensors.items():
        full = full_tensor(tensor)
        if ranks().is_main:
            collected[name] = full.detach().cpu().contiguous()
    return collected


@contextmanager
def gathered_weights(model: nn.Module) -> Iterator[None]:
    """Gather the trainable weights under ZeRO-3, whole in every process during the block. Every process has to enter it."""
    sharded = [parameter for parameter in model.parameters() if parameter.requires_grad and hasattr(parameter, "ds_id")]
    if not sharded:
        yield
        return
    from deepspeed import zero  # pyright: ignore[reportMissingImports] # users of ZeRO have installed it

    with zero.GatheredParameters(sharded):
        yield


def is_sharded(tensors: Iterable[Tensor]) -> bool:
    return any(isinstance(tensor, DTensor) for tensor in tensors)
