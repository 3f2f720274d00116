"""The state of a run between two updates, as safetensors and JSON: weights, optimiser, schedule, random numbers.

Parameters are named, so a state fits whatever order an optimiser keeps them in, and however many processes hold them.
Where each process holds a part (FSDP), each writes it: `weights-00001-of-00002.safetensors`. Of the random number
generators only torch's are kept: the loop draws from no other (dropout is torch's, and the order of packs is planned ahead).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from clawpipe.training.process.collectives import as_held, from_all, is_sharded, part
from clawpipe.training.process.ranks import world

_WEIGHTS, _OPTIMIZER, _BEST = "weights", "optimizer", "best"
_SCHEDULE, _RANDOM = "schedule.json", "random.safetensors"


def save_state(
    directory: Path, model: nn.Module, optimizer: Optimizer, scheduler: LRScheduler, best: dict[str, Tensor] | None = None
) -> None:
    """Write it, with `best`, the trainable weights to go back to in the end, where there are any. All processes take part."""
    weights = {name: parameter.detach() for name, parameter in trainable(model)}
    moments = {
        f"{name}|{key}": value
        for name, parameter in trainable(model)
        for key, value in optimizer.state.get(parameter, {}).items()  # empty before the first step
    }
    sharded = is_sharded(weights.values())
    for kind, tensors in ((_WEIGHTS, weights), (_OPTIMIZER, moments), (_BEST, best or {})):
        if (tensors or kind != _BEST) and (sharded or world().is_main):
            save_file({name: part(tensor).contiguous() for name, tensor in tensors.items()}, _file(directory, kind, sharded))
    random = from_all(_random_states())
    if world().is_main:
        (directory / _SCHEDULE).write_text(json.dumps(scheduler.state_dict()))
        states = {f"{kind}-{rank}": state for rank, states in enumerate(random) for kind, state in states.items()}
        save_file(states, directory / _RANDOM)


def load_weights(directory: Path, model: nn.Module) -> None:
    stored = load_best(directory, model, _WEIGHTS)
    with torch.no_grad():
        for name, parameter in trainable(model):
            parameter.copy_(stored[name])


def load_best(directory: Path, model: nn.Module, kind: str = _BEST) -> dict[str, Tensor]:
    """The trainable weights to go back to in the end, spread as those of `model` are; nothing where there are none."""
    held = dict(trainable(model))
    return {name: as_held(tensor, held[name]) for name, tensor in _stored(directory, kind, held)}


def load_optimizer(directory: Path, model: nn.Module, optimizer: Optimizer, scheduler: LRScheduler) -> None:
    parameters = dict(trainable(model))
    for key, value in _stored(directory, _OPTIMIZER, parameters):
        name, _, moment = key.rpartition("|")
        parameter = parameters[name]
        # AdamW counts its steps on the CPU
        optimizer.state[parameter][moment] = value if moment == "step" else as_held(value, parameter)
    scheduler.load_state_dict(json.loads((directory / _SCHEDULE).read_text()))
    for group, rate in zip(optimizer.param_groups, scheduler.get_last_lr(), strict=True):
        group["lr"] = rate  # a scheduler sets it when it steps, not when it is loaded


def load_random(directory: Path) -> None:
    """The state of this process's generators; those of another where fewer processes wrote than now run."""
    states = load_file(directory / _RANDOM)
    rank = world().rank % sum(name.startswith("cpu-") for name in states)
    torch.set_rng_state(states[f"cpu-{rank}"])
    if torch.cuda.is_available() and f"cuda-{rank}" in states:
        torch.cuda.set_rng_state(states[f"cuda-{rank}"])


def trainable(model: nn.Module) -> Iterator[tuple[str, nn.Parameter]]:
    """Named parameters that have a gradient; tied ones once."""
    return ((name, parameter) for name, parameter in model.named_parameters() if parameter.requires_grad)


def _random_states() -> dict[str, Tensor]:
    states = {"cpu": torch.get_rng_state()}
    return states | {"cuda": torch.cuda.get_rng_state()} if torch.cuda.is_available() else states


def _file(directory: Path, kind: str, sharded: bool) -> Path:
    shard = f"-{world().rank + 1:05d}-of-{world().size:05d}" if sharded else ""
    return directory / f"{kind}{shard}.safetensors"


def _stored(directory: Path, kind: str, parameters: Mapping[str, nn.Parameter]) -> Iterator[tuple[str, Tensor]]:
    """Each tensor whole, by name (of a parameter, with `|moment` behind it or not), whoever wrote which part of it."""
    files = sorted(directory.glob(f"{kind}*.safetensors"))
    with ExitStack() as stack:
        shards = [stack.enter_context(safe_open(file, framework="pt")) for file in files]
        for key in shards[0].keys() if shards else ():
            first = shards[0].get_tensor(key)
            if first.dim() == 0 or first.shape == parameters[key.rpartition("|")[0] or key].shape:
                yield key, first
            else:
                yield key, torch.cat([first, *(shard.get_tensor(key) for shard in shards[1:])])  # FSDP cuts the first dimension
