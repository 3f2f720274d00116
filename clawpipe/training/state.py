"""The state of a run between two updates, as safetensors and JSON: weights, optimiser, schedule, random numbers.

Parameters are named, so a state fits whatever order an optimiser keeps them in. Of the random number generators only
torch's are kept: the loop draws from no other (dropout is torch's, and the order of packs is planned ahead).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

_WEIGHTS, _OPTIMIZER, _SCHEDULE, _RANDOM = "weights.safetensors", "optimizer.safetensors", "schedule.json", "random.safetensors"


def save_state(directory: Path, model: nn.Module, optimizer: Optimizer, scheduler: LRScheduler) -> None:
    """Write the four files."""
    save_file({name: parameter.detach().contiguous() for name, parameter in _trainable(model)}, directory / _WEIGHTS)
    moments = {
        f"{name}|{key}": value
        for name, parameter in _trainable(model)
        for key, value in optimizer.state.get(parameter, {}).items()  # empty before the first step
    }
    save_file(moments, directory / _OPTIMIZER)
    (directory / _SCHEDULE).write_text(json.dumps(scheduler.state_dict()))
    save_file(_random_states(), directory / _RANDOM)


def load_weights(directory: Path, model: nn.Module) -> None:
    stored = load_file(directory / _WEIGHTS)
    with torch.no_grad():
        for name, parameter in _trainable(model):
            parameter.copy_(stored[name])


def load_optimizer(directory: Path, model: nn.Module, optimizer: Optimizer, scheduler: LRScheduler) -> None:
    parameters = dict(_trainable(model))
    for key, value in load_file(directory / _OPTIMIZER).items():
        name, _, moment = key.rpartition("|")
        parameter = parameters[name]
        place = "cpu" if moment == "step" else parameter.device  # AdamW counts its steps on the CPU
        optimizer.state[parameter][moment] = value.to(place)
    scheduler.load_state_dict(json.loads((directory / _SCHEDULE).read_text()))
    for group, rate in zip(optimizer.param_groups, scheduler.get_last_lr(), strict=True):
        group["lr"] = rate  # a scheduler sets it when it steps, not when it is loaded


def load_random(directory: Path) -> None:
    states = load_file(directory / _RANDOM)
    torch.set_rng_state(states["cpu"])
    if torch.cuda.is_available() and "cuda" in states:
        torch.cuda.set_rng_state(states["cuda"])


def _random_states() -> dict[str, Tensor]:
    states = {"cpu": torch.get_rng_state()}
    return states | {"cuda": torch.cuda.get_rng_state()} if torch.cuda.is_available() else states


def _trainable(model: nn.Module) -> Iterator[tuple[str, nn.Parameter]]:
    return ((name, parameter) for name, parameter in model.named_parameters() if parameter.requires_grad)
