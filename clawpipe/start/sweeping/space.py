"""The space of a sweep: a YAML file of dotted settings, each with a range or with choices."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from pydantic import Field, TypeAdapter, ValidationError, model_validator

from clawpipe.core.basics.json_types import JsonObject, Options
from clawpipe.core.config.block import Block
from clawpipe.core.config.load import read_yaml, with_settings
from clawpipe.core.config.night import NightConfig
from clawpipe.errors import ConfigError

Number = int | float
_LABEL = "night"
_YARDSTICK = (
    *(f"environment.{field}" for field in ("name", "heldout_items", "benchmark_items", "seed", "options")),
    "environments",
    "evaluation.",
)
_SCALARS = (str, int, float, bool, type(None))


class Range(Block):
    """Numbers from `low` to `high`, both included; integers if both are integers."""

    low: Number
    high: Number
    log: bool = Field(default=False, description="draw uniformly in the logarithm")
    step: Number | None = Field(default=None, gt=0)

    @model_validator(mode="after")
    def _is_a_valid_range(self) -> Range:
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
    """Any values, unordered."""

    choices: tuple[Any, ...] = Field(min_length=1)

    def ends(self) -> tuple[Any, ...]:
        return self.choices

    def draw(self, trial: Drawer, name: str) -> Any:
        names = {_spelt(choice): choice for choice in self.choices}
        return names[trial.suggest_categorical(name, list(names))]


class Drawer(Protocol):
    """The part of an Optuna trial's interface used here."""

    def suggest_int(self, name: str, low: int, high: int, *, step: int = ..., log: bool = ...) -> int: ...
    def suggest_float(self, name: str, low: float, high: float, *, step: float | None = ..., log: bool = ...) -> float: ...
    def suggest_categorical(self, name: str, choices: list[Any]) -> Any: ...


Space = dict[str, Range | Choices]
_SPACE = TypeAdapter(Space)


def read_space(path: Path, config: NightConfig) -> Space:
    """Read the space in `path`, and check that `config` accepts the ends of every dimension.

    Raises:
        NotFoundError: the file does not exist.
        ConfigError: it is not YAML, has no range or choices, names a field that does not exist or must not vary, or a bad value.
    """
    try:
        space = _SPACE.validate_python(read_yaml(path))
    except ValidationError as error:
        what = "; ".join(f"{item['loc'][0]}: {item['msg']}" for item in error.errors()[:1])
        fix = "write `field: {low: 1.0e-5, high: 1.0e-3, log: true}` or `field: {choices: [a, b]}`"
        raise ConfigError(what, str(path), fix) from None
    if not space:
        raise ConfigError("nothing to vary", str(path))
    for name, dimension in space.items():
        _require_variable(name, path)
        for value in dimension.ends():
            with_settings(config, {name: value})
    return space


def draw(trial: Drawer, space: Space) -> Options:
    """Draw one value of each field; a repeated draw for the same trial gives the same values."""
    return {name: dimension.draw(trial, name) for name, dimension in space.items()}


def _require_variable(name: str, path: Path) -> None:
    if name == _LABEL:
        raise ConfigError("the sweep sets the label of a trial", f"{path}: {name}", "leave it out")
    if name.startswith(_YARDSTICK):
        raise ConfigError(
            "this decides what the objective is measured on, so trials could not be compared", f"{path}: {name}", "leave it out"
        )


def _spelt(value: Any) -> Any:
    """Return a choice in Optuna's form: scalars as they are, lists and mappings as JSON."""
    return value if isinstance(value, _SCALARS) else json.dumps(value, sort_keys=True)


def as_json(space: Mapping[str, Range | Choices]) -> JsonObject:
    """Return the space as plain JSON."""
    return _SPACE.dump_python(dict(space), mode="json", exclude_defaults=True)
