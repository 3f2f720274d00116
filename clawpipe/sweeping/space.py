"""What a sweep may vary: a YAML file of dotted config fields, each with a range or with choices."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from pydantic import Field, TypeAdapter, ValidationError, model_validator

from clawpipe.config.block import Block
from clawpipe.config.load import read_yaml, with_settings
from clawpipe.config.night import NightConfig
from clawpipe.errors import ConfigError

Number = int | float
_LABEL = "night"
_YARDSTICK = (
    *(f"environment.{field}" for field in ("name", "heldout_items", "benchmark_items", "seed", "options")),
    "evaluation.",
)
_SCALARS = (str, int, float, bool, type(None))


class Range(Block):
    """Numbers from `low` to `high`, both included; whole ones if both are written so."""

    low: Number
    high: Number
    log: bool = Field(default=False, description="every factor equally likely, instead of every difference")
    step: Number | None = Field(default=None, gt=0)

    @model_validator(mode="after")
    def _can_be_drawn_from(self) -> Range:
        if self.low >= self.high:
            raise ValueError(f"low ({self.low}) must be below high ({self.high})")
        if self.log and (self.low <= 0 or self.step is not None):
            raise ValueError("`log` needs low > 0 and goes with no `step`")
        return self

    def ends(self) -> tuple[Any, ...]:
        return self.low, self.high

    def draw(self, trial: Drawer, name: str) -> Any:
        if isinstance(self.low, int) and isinstance(self.high, int) and isinstance(self.step, int | None):
            return trial.suggest_int(name, self.low, self.high, log=self.log, step=self.step or 1)
        return trial.suggest_float(name, self.low, self.high, log=self.log, step=self.step)


class Choices(Block):
    """Any values, without an order."""

    choices: tuple[Any, ...] = Field(min_length=1)

    def ends(self) -> tuple[Any, ...]:
        return self.choices

    def draw(self, trial: Drawer, name: str) -> Any:
        names = {_spelt(choice): choice for choice in self.choices}
        return names[trial.suggest_categorical(name, list(names))]


class Drawer(Protocol):
    """An Optuna trial, as far as it is needed here."""

    def suggest_int(self, name: str, low: int, high: int, *, step: int = ..., log: bool = ...) -> int: ...
    def suggest_float(self, name: str, low: float, high: float, *, step: float | None = ..., log: bool = ...) -> float: ...
    def suggest_categorical(self, name: str, choices: list[Any]) -> Any: ...


Space = dict[str, Range | Choices]
_SPACE = TypeAdapter(Space)


def read_space(path: Path, config: NightConfig) -> Space:
    """The space in `path`, every end of which `config` takes.

    Raises:
        NotFoundError: no such file.
        ConfigError: not YAML, no range or choices, a field that does not exist or may not be varied, or a value it refuses.
    """
    try:
        space = _SPACE.validate_python(read_yaml(path))
    except ValidationError as error:
        told = "; ".join(f"{item['loc'][0]}: {item['msg']}" for item in error.errors()[:1])
        fix = "write `field: {low: 1.0e-5, high: 1.0e-3, log: true}` or `field: {choices: [a, b]}`"
        raise ConfigError(told, str(path), fix) from None
    if not space:
        raise ConfigError("nothing to vary", str(path))
    for name, dimension in space.items():
        _require_variable(name, path)
        for value in dimension.ends():
            with_settings(config, {name: value})
    return space


def draw(trial: Drawer, space: Space) -> dict[str, Any]:
    """One value of each field; asked again of the same trial, the same ones."""
    return {name: dimension.draw(trial, name) for name, dimension in space.items()}


def _require_variable(name: str, path: Path) -> None:
    if name == _LABEL:
        raise ConfigError("the label of a trial is the sweep's own", f"{path}: {name}", "leave it out")
    if name.startswith(_YARDSTICK):
        raise ConfigError(
            "this decides what the objective is measured on, so trials could not be compared", f"{path}: {name}", "leave it out"
        )


def _spelt(value: Any) -> Any:
    """How Optuna knows a choice: scalars as they are, lists and mappings as JSON."""
    return value if isinstance(value, _SCALARS) else json.dumps(value, sort_keys=True)


def as_json(space: Mapping[str, Range | Choices]) -> dict[str, Any]:
    """The space as plain JSON."""
    return _SPACE.dump_python(dict(space), mode="json", exclude_defaults=True)
