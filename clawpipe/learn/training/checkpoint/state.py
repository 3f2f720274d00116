"""The state of a run between two optimizer steps: weights, optimizer, schedule and random numbers, as safetensors and JSON.

Tensors are stored by parameter name, so that a state fits any order of parameters and any number of processes.
With FSDP each process writes the part that it holds: `weights-00001-of-00002.safetensors`. Only torch's random state is
stored, because the loop uses no other: dropout is torch's, and the order of packs is planned ahead.
"""

from __future__ import annotations

import json
import math
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.learn.children.ranks import ranks
from clawpipe.learn.training.checkpoint.moments import gathered_moments, moments_of, set_moment, trainable, write_moments
from clawpipe.learn.training.model.adapter import adapter_tensors, model_tensors, save_adapter
from clawpipe.learn.training.model.value_head import save_value_head, value_head_tensors
from clawpipe.learn.training.outcome import commit_outcome
from clawpipe.learn.training.process.collectives import all_gather, as_held, full_tensor, gathered_weights, is_sharded, local_part
from clawpipe.learn.training.request import TrainRequest, snapshot_name
from clawpipe.model.policy.weights import save_model

_WEIGHTS, _OPTIMIZER, _BEST = "weights", "optimizer", "best"
_SCHEDULE, _RANDOM = "schedule.json", "random.safetensors"
_ELEMENTS = 1 << 16  # at most so many evenly spread elements of a tensor are compared, so that the copy stays small


def save_state(
    directory: Path, model: nn.Module, optimizer: Optimizer, scheduler: LRScheduler, best: dict[str, Tensor] | None = None
) -> None:
    """Write the state, and `best`, the best trainable weights so far, if there are any. Every process has to call it."""
    weights, moments = {name: parameter.detach() for name, parameter in trainable(model)}, moments_of(model, optimizer)
    sharded = is_sharded(weights.values())
    for kind, tensors in ((_WEIGHTS, weights), (_OPTIMIZER, moments), (_BEST, best or {})):
        if (tensors or kind != _BEST) and (sharded or ranks().is_main):
            save_file({name: local_part(tensor).contiguous() for name, tensor in tensors.items()}, _file(directory, kind, sharded))
    random = all_gather(_random_states())
    if ranks().is_main:
        (directory / _SCHEDULE).write_text(json.dumps(scheduler.state_dict()))
        states = {f"{kind}-{rank}": state for rank, states in enumerate(random) for kind, state in states.items()}
        save_file(states, directory / _RANDOM)


def load_weights(directory: Path, model: nn.Module) -> None:
    stored = load_best(directory, model, _WEIGHTS)
    with torch.no_grad():
        for name, parameter in trainable(model):
            parameter.copy_(stored[name])


def load_best(directory: Path, model: nn.Module, kind: str = _BEST) -> dict[str, Tensor]:
    """Load the best trainable weights, sharded like those of `model`; empty if none were stored."""
    parameters = dict(trainable(model))
    return {name: as_held(tensor, parameters[name]) for name, tensor in _stored(directory, kind, parameters)}


def load_optimizer(directory: Path, model: nn.Module, optimizer: Optimizer, scheduler: LRScheduler) -> None:
    parameters = dict(trainable(model))
    for key, value in _stored(directory, _OPTIMIZER, parameters):
        name, _, moment = key.rpartition("|")
        set_moment(optimizer, parameters[name], moment, value)
    scheduler.load_state_dict(json.loads((directory / _SCHEDULE).read_text()))
    for group, rate in zip(optimizer.param_groups, scheduler.get_last_lr(), strict=True):
        group["lr"] = rate  # a scheduler sets it when it steps, not when it is loaded


def load_random(directory: Path) -> None:
    """Restore this process's random state; another process's where fewer processes wrote the state than run now."""
    states = load_file(directory / _RANDOM)
    rank = ranks().rank % sum(name.startswith("cpu-") for name in states)
    torch.set_rng_state(states[f"cpu-{rank}"])
    if torch.cuda.is_available() and f"cuda-{rank}" in states:
        torch.cuda.set_rng_state(states[f"cuda-{rank}"])


def _random_states() -> dict[str, Tensor]:
    states = {"cpu": torch.get_rng_state()}
    return states | {"cuda": torch.cuda.get_rng_state()} if torch.cuda.is_available() else states


def _file(directory: Path, kind: str, sharded: bool) -> Path:
    shard = f"-{ranks().rank + 1:05d}-of-{ranks().size:05d}" if sharded else ""
    return directory / f"{kind}{shard}.safetensors"


def _stored(directory: Path, kind: str, parameters: Mapping[str, nn.Parameter]) -> Iterator[tuple[str, Tensor]]:
    """Yield each tensor whole, by parameter name or `parameter|moment`, joined from the parts that the processes wrote."""
    files = sorted(directory.glob(f"{kind}*.safetensors"))
    with ExitStack() as stack:
        shards = [stack.enter_context(safe_open(file, framework="pt")) for file in files]
        for key in shards[0].keys() if shards else ():
            first = shards[0].get_tensor(key)
            if first.dim() == 0 or first.shape == parameters[key.rpartition("|")[0] or key].shape:
                yield key, first
            else:
                yield key, torch.cat([first, *(shard.get_tensor(key) for shard in shards[1:])])  # FSDP shards the first dimension


class _Part(NamedTuple):
    """Every `each`-th element of a weight."""

    elements: Tensor
    each: int


class Movement:
    """Measures how far the trained weights move from their values at construction. Every process has to take part."""

    def __init__(self, model: nn.Module) -> None:
        self._before = _sampled(model)

    def relative(self, model: nn.Module) -> float:
        """Return the norm of the change over the norm of the old weights, both in the weights' dtype, as they will be written.

        At most 65,536 elements of a tensor are compared.
        """
        pairs = list(zip(_sampled(model), self._before, strict=True))
        moved = sum(now.each * float((now.elements.double() - before.elements.double()).square().sum()) for now, before in pairs)
        norm = sum(before.each * float(before.elements.double().square().sum()) for _, before in pairs)
        return math.sqrt(moved / norm) if norm else math.sqrt(moved)


def _sampled(model: nn.Module) -> list[_Part]:
    with gathered_weights(model), torch.no_grad():
        return [_spread(full_tensor(weight)) for _, weight in trainable(model)]


def _spread(weight: Tensor) -> _Part:
    each = max(1, math.ceil(weight.numel() / _ELEMENTS))
    return _Part(weight.detach().flatten()[::each].cpu().clone(), each)


def commit(
    request: TrainRequest, model: Any, steps: list[dict[str, float]], summary: JsonObject, optimizer: Optimizer | None = None
) -> None:
    """Write the outcome, complete or not at all.

    Args:
        request: the run's request; it names the output directory and says whether an adapter or a whole model was trained.
        model: the trained policy.
        steps: metrics of each optimizer step.
        summary: fields of the summary file known so far; `moved` is the relative norm of the weights' change.
        optimizer: the one whose moments the night's next round starts with; None if they cannot be written.

    Raises:
        TrainingError: a weight is not finite; nothing is committed.
    """
    moments = gathered_moments(model, optimizer) if optimizer is not None and request.is_gone_on_from else {}
    if not ranks().is_main:
        _collect_with_others(request, model)
        return
    commit_outcome(request, steps, summary, partial(_write_weights, request, model), partial(write_moments, moments=moments))


def keep_snapshot(request: TrainRequest, model: Any, step: int) -> None:
    """Keep the weights after an optimizer step, as an outcome holds them; every process has to call it.

    Raises:
        TrainingError: a weight is not finite.
    """
    with gathered_weights(model):
        if not ranks().is_main:
            _collect_with_others(request, model)
            return
        final = request.snapshots / snapshot_name(step)
        staging = final.with_name(f".{final.name}.partial")
        shutil.rmtree(staging, ignore_errors=True)
        _write_weights(request, model, staging)
        shutil.rmtree(final, ignore_errors=True)  # of a run that was killed before its next checkpoint
        os.replace(staging, final)


def _write_weights(request: TrainRequest, model: Any, directory: Path) -> None:
    if request.config.adapter == "full":
        save_model(model, model_tensors(model), directory, Path(request.base))
    else:
        save_adapter(model, directory, request.base_digest)
    save_value_head(model, directory)


def _collect_with_others(request: TrainRequest, model: Any) -> None:
    """Take part in collecting the tensors that the main process writes, in the same order."""
    (model_tensors if request.config.adapter == "full" else adapter_tensors)(model)
    value_head_tensors(model)
