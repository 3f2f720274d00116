"""The extensions that settings name: environments, engines, scorers, objectives and backends. Nothing here loads one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel

from clawpipe.config.backend import BackendSpec
from clawpipe.config.night import EngineSpec, EnvironmentSpec, JudgeSpec
from clawpipe.config.training import Loss
from clawpipe.engines.base import ENGINES
from clawpipe.environments.discovery import ENVIRONMENTS
from clawpipe.extensions import ExtensionPoint
from clawpipe.judging.base import SCORERS
from clawpipe.training.backends import BACKENDS
from clawpipe.training.losses.objectives import LOSSES

_NAMES: dict[type[BaseModel], tuple[ExtensionPoint, str]] = {  # settings that name an extension, and in which field
    EnvironmentSpec: (ENVIRONMENTS, "name"),
    EngineSpec: (ENGINES, "name"),
    JudgeSpec: (SCORERS, "name"),
    Loss: (LOSSES, "objective"),
    BackendSpec: (BACKENDS, "name"),
}


def extensions_of(value: Any) -> Iterator[tuple[ExtensionPoint, str]]:
    """The extensions that arguments name, and the settings that they hold."""
    return ((point, name_in(block)) for point, block in named_blocks(value))


def named_blocks(value: Any) -> Iterator[tuple[ExtensionPoint, BaseModel]]:
    """The blocks of settings that name extensions, each with the kind of these."""
    if isinstance(value, BaseModel):
        yield from ((point, value) for kind, (point, _) in _NAMES.items() if isinstance(value, kind))
        yield from (found for _, inner in value for found in named_blocks(inner))
    elif isinstance(value, list | tuple):
        yield from (found for inner in value for found in named_blocks(inner))


def name_in(block: BaseModel) -> str:
    """Return the extension that a block names."""
    return next(getattr(block, field) for kind, (_, field) in _NAMES.items() if isinstance(block, kind))
