"""What the processes of one run do together, under DDP and under FSDP2. With one process everything here does nothing."""

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

from clawpipe.errors import ConfigError
from clawpipe.policy.load import resolve_device
from clawpipe.training.data.packing import Pack
from clawpipe.training.process.ranks import ranks

Value = TypeVar("Value")


def join(device: str) -> None:
    """Meet the others; from here on `cuda` is the GPU of this process.

    Args:
        device: runtime.device.

    Raises:
        ConfigError: fewer GPUs than processes on this machine, or one GPU is named for all.
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
                "one process a GPU at most",
            )
        torch.cuda.set_device(here.local_rank)
    distributed.init_process_group("gloo" if kind == "cpu" else "cpu:gloo,cuda:nccl")


def leave() -> None:
    """Part in good order."""
    if distributed.is_initialized():
        distributed.barrier()
        distributed.destroy_process_group()


def uses_fsdp() -> bool:
    """Whether the accelerate config asks for FSDP."""
    return os.environ.get("ACCELERATE_USE_FSDP", "false").lower() == "true"


def placement(kind: str) -> dict[str, Any]:
    """Arguments of `TrainingArguments` for a device: told to use a CPU, accelerate 1.15 would not look for DeepSpeed."""
    if kind == "cpu" and os.environ.get("ACCELERATE_USE_DEEPSPEED", "false").lower() == "true":
        return {"ddp_backend": "gloo"}
    return {"use_cpu": kind == "cpu"}


def shard_on_cpu_too(arguments: TrainingArguments) -> None:
    """Let FSDP act on a CPU: accelerate 1.15 looks for it on accelerators alone, and would replicate in silence."""
    if uses_fsdp() and arguments.device.type == "cpu":
        PartialState._shared_state["distributed_type"] = DistributedType.MULTI_GPU


def shard(plan: Sequence[Sequence[Pack]], processes: int) -> list[list[Pack]]:
    """The plan with empty packs at each update's end, so that every process gets as many of them: they are sharded in turn."""
    return [[*packs, *([[]] * (-len(packs) % processes))] for packs in plan]


def wait() -> None:
    """For all others to come here."""
    if distributed.is_initialized():
        distributed.barrier()


def from_main(make: Callable[[], Value]) -> Value:
    """What `make` gives in the main process, in all of them."""
    if not distributed.is_initialized():
        return make()
    box: list[Any] = [make() if ranks().is_main else None]
    distributed.broadcast_object_list(box)
    return box[0]


def from_all(value: Value) -> list[Value]:
    """Everybody's value, by rank."""
    if not distributed.is_initialized():
        return [value]
    values: list[Any] = [None] * distributed.get_world_size()
    distributed.all_gather_object(values, value)
    return values


# ---- tensors of which every process holds a part


def part(tensor: Tensor) -> Tensor:
    """What this process holds of it."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def whole(tensor: Tensor) -> Tensor:
    """All of it. Everybody has to ask."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def as_held(tensor: Tensor, like: Tensor) -> Tensor:
    """The whole `tensor`, which everybody has, spread as `like` is."""
    if not isinstance(like, DTensor):
        return tensor.to(like.device)
    return distribute_tensor(tensor.to(like.device), like.device_mesh, like.placements, src_data_rank=None)


def collect(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """All of them, whole and on the CPU, in the main process; nothing in others, which have to ask nevertheless."""
    collected = {}
    for name, tensor in tensors.items():
        full = whole(tensor)
        if ranks().is_main:
            collected[name] = full.detach().cpu().contiguous()
    return collected


@contextmanager
def gathered(model: nn.Module) -> Iterator[None]:
    """What is trained of a model under ZeRO-3, whole in every process for the length of the block. Everybody has to come."""
    cut = [parameter for parameter in model.parameters() if parameter.requires_grad and hasattr(parameter, "ds_id")]
    if not cut:
        yield
        return
    from deepspeed import zero  # pyright: ignore[reportMissingImports] # whoever uses it has installed it

    with zero.GatheredParameters(cut):
        yield


def is_sharded(tensors: Iterable[Tensor]) -> bool:
    return any(isinstance(tensor, DTensor) for tensor in tensors)
