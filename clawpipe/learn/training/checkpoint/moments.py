"""AdamW's state by parameter name: within a checkpoint, and between two rounds of a night as a directory of its own.

moments.safetensors   `parameter|exp_avg`, `parameter|exp_avg_sq`, `parameter|step`, of narrow weights also `parameter|master`
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.optim import Optimizer

from clawpipe.errors import ConfigError
from clawpipe.learn.training.process.collectives import as_held, full_tensor, gather_on_main

_MOMENTS = "moments.safetensors"
_MASTER = "master"  # see clawpipe.learn.training.trainers.optimizer
_FIX = "train the night's rounds with the same base and adapter"


def trainable(model: nn.Module) -> Iterator[tuple[str, nn.Parameter]]:
    """Return the named parameters that require a gradient; tied parameters once."""
    return ((name, parameter) for name, parameter in model.named_parameters() if parameter.requires_grad)


def moments_of(model: nn.Module, optimizer: Optimizer) -> dict[str, Tensor]:
    """Return the optimizer's tensors by `parameter|moment`; none before the first step."""
    return {
        f"{name}|{key}": value for name, parameter in trainable(model) for key, value in optimizer.state.get(parameter, {}).items()
    }


def set_moment(optimizer: Optimizer, parameter: nn.Parameter, moment: str, value: Tensor) -> None:
    """Give the optimizer a moment of a parameter, sharded as the parameter is."""
    optimizer.state[parameter][moment] = value if moment == "step" else as_held(value, parameter)  # AdamW counts on the CPU


def gathered_moments(model: nn.Module, optimizer: Optimizer) -> dict[str, Tensor]:
    """Return the optimizer's tensors, whole, in the main process; every process has to call it."""
    return gather_on_main(moments_of(model, optimizer))


def write_moments(directory: Path, moments: Mapping[str, Tensor]) -> None:
    """Write the moments that the night's next round starts with."""
    save_file(dict(moments), directory / _MOMENTS)


def load_moments(directory: Path, model: nn.Module, optimizer: Any) -> None:
    """Give the optimizer the state that an earlier round of the night ended with. Every process has to call it.

    A float32 master that does not round to the weight is that of a later step than the one whose weights were kept: it starts anew.

    Raises:
        ConfigError: the state is that of other weights.
    """
    parameters = dict(trainable(model))
    for key, value in load_file(directory / _MOMENTS).items():
        name, _, moment = key.rpartition("|")
        if name not in parameters or value.shape not in (torch.Size(), parameters[name].shape):
            raise ConfigError(f"the optimizer's state does not fit the trained weights at {name}", str(directory), _FIX)
        current = value if moment != _MASTER else _master(value, parameters[name])
        set_moment(optimizer, parameters[name], moment, current)


def _master(stored: Tensor, weight: nn.Parameter) -> Tensor:
    """Return the stored float32 master, or one of the weight where the stored one does not round to it."""
    held = full_tensor(weight.detach()).cpu()
    return stored if torch.equal(stored.to(held.dtype), held) else held.float()
