"""A session with a service that keeps the weights of one policy, and trains them step by step."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
from torch import Tensor

from clawpipe.learn.training.data.samples import Sample


@dataclass(frozen=True)
class NamedLoss:
    """A loss that the service computes itself, by its name in Tinker's API.

    Attributes:
        config: its settings.
        inputs: its inputs beside the tokens, [N] over the rows' trained tokens.
    """

    name: str
    config: Mapping[str, float]
    inputs: Mapping[str, Tensor]


@dataclass(frozen=True)
class StepLoss:
    """What one optimizer step minimises.

    Attributes:
        of: the loss, of the log-probs [N] of the rows' trained tokens, with gradient.
        named: the same as the service computes it, where it has it; `of` takes a forward pass more.
    """

    of: Callable[[Tensor], Tensor]
    named: NamedLoss | None


class Session(Protocol):
    """The weights of one policy at a service. Log-probs are those at temperature 1.

    Each member raises ConfigError, DataError, TrainingError; or BusyError, where a later try goes on from the last saved state.
    """

    def logprobs(self, rows: Sequence[Sample]) -> list[Tensor]:
        """Return the log-probs [N] of each row's trained tokens under the present weights."""
        ...

    def add_gradient(self, rows: Sequence[Sample], loss: StepLoss) -> Tensor:
        """Add the loss's gradient, and return the log-probs [N] of all rows' trained tokens, from before any step."""
        ...

    def step(self, rate: float) -> float | None:
        """Step the optimizer with the gradient so far, and forget it. Return the gradient's norm, if the service tells."""
        ...

    def save(self, name: str) -> str:
        """Save weights and optimizer, and return by which path a later session goes on from them."""
        ...

    def save_for_sampling(self, name: str) -> str:
        """Save the present weights, and return by which path the service samples from them."""
        ...

    def export(self, name: str, directory: Path) -> None:
        """Write the present weights into a new directory, as an adapter in peft's files."""
        ...


class OpenSession(Protocol):
    """Opens a session, from a saved path, or with a new adapter on the base."""

    def __call__(self, state: str | None) -> Session: ...


def whole_rows(rows: Sequence[Sequence[int]]) -> list[Sample]:
    """Return token ids as rows all of whose tokens but the first are trained."""
    return [Sample("", np.asarray(row), np.arange(1, len(row)), 1.0, 1.0, {}) for row in rows]
