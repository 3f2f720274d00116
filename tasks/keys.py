"""Keys of steps: what decides a step's result, as one digest."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from pydantic import BaseModel

from clawpipe.core.config.backend import BackendSpec
from clawpipe.core.config.block import Extension
from clawpipe.core.config.night import EngineSpec, EnvironmentSpec, JudgeSpec
from clawpipe.core.config.training import Loss
from clawpipe.core.store.digests import canonical_as, is_block
from clawpipe.core.store.keys import step_key
from clawpipe.core.store.source import function_digest
from clawpipe.core.user_code.extensions import ExtensionPoint
from clawpipe.learn.training.backends import BACKENDS
from clawpipe.learn.training.losses.objectives import LOSSES
from clawpipe.model.engines.base import ENGINES
from clawpipe.play.environments.discovery import ENVIRONMENTS, inputs_digest, source_digest
from clawpipe.play.environments.named_files import digests_named
from clawpipe.play.judging.base import SCORERS

_NAMES: dict[type[BaseModel], tuple[ExtensionPoint, str]] = {  # settings that name an extension, and in which field
    EnvironmentSpec: (ENVIRONMENTS, "name"),
    EngineSpec: (ENGINES, "name"),
    JudgeSpec: (SCORERS, "name"),
    Loss: (LOSSES, "objective"),
    BackendSpec: (BACKENDS, "name"),
}


def content_key(name: str, function: Callable[..., Any], arguments: Mapping[str, Any], code: str | None = None) -> str:
    """Return the cache key of `function(**arguments)`, before any generation suffix; `clawpipe plan` shows it.

    `code` is the digest of what the function runs; None: that of its own text and of the names that it uses.

    Of settings, only the fields of the parameter's declared type are in the key; of an environment or engine, also its source and
    the content of the files that its options name; of an environment with a Python of its own, that Python's version and packages.

    Raises:
        TypeError: an argument has no canonical form.
        NotFoundError: no such environment or engine.
    """
    declared = get_type_hints(inspect.unwrap(function))
    inputs = {parameter: _as_declared(value, declared.get(parameter)) for parameter, value in arguments.items()}
    given = list(arguments.values())
    sources = {_source_of(point, named) for point, named in _named(given)} | set(_files_of(given))
    return step_key(name, {"inputs": inputs, "extensions": sorted(sources)}, code or function_digest(function))


def extensions_of(value: Any) -> Iterator[tuple[ExtensionPoint, str]]:
    """The extensions that arguments name, and the settings that they hold."""
    return ((point, _name_in(block)) for point, block in _named(value))


def _named(value: Any) -> Iterator[tuple[ExtensionPoint, BaseModel]]:
    """The blocks of settings that name extensions, each with the kind of these."""
    if isinstance(value, BaseModel):
        yield from ((point, value) for kind, (point, _) in _NAMES.items() if isinstance(value, kind))
        yield from (found for _, inner in value for found in _named(inner))
    elif isinstance(value, list | tuple):
        yield from (found for inner in value for found in _named(inner))


def _name_in(block: BaseModel) -> str:
    return next(getattr(block, field) for kind, (_, field) in _NAMES.items() if isinstance(block, kind))


def _source_of(point: ExtensionPoint, block: BaseModel) -> str:
    """Return the digest of an extension's source, and of the Python and the task folders or image that the settings name."""
    if isinstance(block, EnvironmentSpec):
        return source_digest(block.name, block.python) + inputs_digest(block.name, block.options)
    return point.source_digest(_name_in(block))


def _files_of(value: Any) -> Iterator[str]:
    """The digests of the files that options of extensions name."""
    if isinstance(value, Extension):
        yield from digests_named(value.options)
    elif isinstance(value, BaseModel):
        yield from (found for _, inner in value for found in _files_of(inner))
    elif isinstance(value, list | tuple):
        yield from (found for inner in value for found in _files_of(inner))


def _as_declared(value: Any, hint: Any) -> Any:
    if not isinstance(value, BaseModel):
        return value
    choices = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    blocks = [choice for choice in choices if isinstance(choice, type) and isinstance(value, choice) and is_block(choice)]
    return canonical_as(value, blocks[0]) if blocks else value
