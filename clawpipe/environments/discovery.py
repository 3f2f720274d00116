"""Find environments: built-in ones by name, those of installed packages, a user's own as `path/to/file.py:ClassName`.

Listing reads source and imports nothing; only the environment that is asked for is loaded.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from clawpipe.environments.base import KINDS, Environment
from clawpipe.environments.interpreter import interpreter
from clawpipe.environments.options import Option, config_model, config_of, described_options
from clawpipe.environments.source_classes import classes_of
from clawpipe.errors import ConfigError, NotFoundError
from clawpipe.extensions import ExtensionPoint, file_of
from clawpipe.json_types import Options
from clawpipe.store.plain_digests import sha256_plain

_METHODS = {"items", "start", "verify"}  # a class that has them is an environment when its source is read
_DERIVED = {"start", "verify"}  # so is one that defines these on top of another class
_PLAIN = ("tools", "preamble", "items", "distinct_items", "warnings", "verify", "hindsight")  # may not be async
_SINGLE_TURN = {"question", "check"}  # so is one that defines these on top of the class SingleTurn
# Made by name here, so that no step's key holds the source of environments that the step was not given.
_BUILT_IN = {
    name: f"{__package__}.{name}:{name.capitalize()}Environment"
    for name in ("shop", "letters", "tastes", "conversations", "prompts", "tools", "agent")
}
ENVIRONMENTS = ExtensionPoint(
    "environment", "environment.name", _BUILT_IN, members=("name", "kind", "tools", "preamble", "items", "start", "verify")
)

# What plays the episodes of environments in which the policy is asked from outside: a function of a shard's request, its
# environment and an engine, which returns rows. Made by name, since it stands on rooms above this one.
PLAYERS = ExtensionPoint("player", "environment.name", {"agent": "clawpipe.programs.shard:play"})


@dataclass(frozen=True)
class EnvironmentInfo:
    """An environment as its source describes it. `reference` is what a config's `environment.name` takes."""

    name: str
    kind: str
    reference: str
    summary: str


def load_environment(name: str, options: Options) -> Environment:
    """Return the environment that a config names, constructed with its options.

    Raises:
        NotFoundError: no environment of this name, no such file, or no such class in it.
        ConfigError: the file does not import, the class is no environment, it does not take these options, or its constructor
            raises.
    """
    environment = _made(name, options)
    for member in _PLAIN:
        if inspect.iscoroutinefunction(getattr(environment, member, None)):
            raise ConfigError(f"its {member} is async", name, "write `def`: `start` and the members of an episode may be async")
    if environment.kind not in KINDS:
        raise ConfigError(f"{environment.kind!r} is no kind of environment", name, f"kinds are {', '.join(KINDS)}")
    return environment


def _made(name: str, options: Options) -> Any:
    """Return the environment with its options: as its `Config`, given as `config` or set afterwards, or as arguments."""
    factory = ENVIRONMENTS.load(name)
    model = config_model(factory)
    if model is None:
        return ENVIRONMENTS.make(name, options)
    config = config_of(name, model, options)
    if "config" in inspect.signature(factory).parameters:
        return ENVIRONMENTS.make(name, {"config": config})
    environment = ENVIRONMENTS.make(name, {})
    environment.config = config
    return environment


def show_environment(name: str) -> tuple[EnvironmentInfo, list[Option]]:
    """Return an environment's description and its options. Its file is imported, and nothing is made.

    Raises:
        NotFoundError, ConfigError: see `load_environment`.
    """
    factory = ENVIRONMENTS.load(name)
    summary = (inspect.getdoc(factory) or "").partition("\n")[0]
    known = next(_named(name), EnvironmentInfo(ENVIRONMENTS.place(name).member, "", name, summary))
    return replace(known, reference=name), described_options(factory)


def is_built_in(name: str) -> bool:
    """Whether an environment is one of clawpipe's own, and not a user's or a package's."""
    return name in _BUILT_IN


def source_digest(name: str, python: str | None = None) -> str:
    """Return the digest of the environment's source with what it imports, see `ExtensionPoint.source_digest`.

    Args:
        python: that it runs in, whose version and packages are digested, too; a module may lie among these alone.
    """
    if name in PLAYERS.built_in:
        return sha256_plain([ENVIRONMENTS.source_digest(name), PLAYERS.source_digest(name)])
    if python is None:
        return ENVIRONMENTS.source_digest(name)
    there = interpreter(python).digest
    return sha256_plain([name if _is_elsewhere(name) else ENVIRONMENTS.source_digest(name), there])


def _is_elsewhere(name: str) -> bool:
    """Whether a name stands for a module that this Python does not have."""
    if file_of(name):
        return False
    try:
        ENVIRONMENTS.file(name)
    except NotFoundError:
        return True
    return False


def environment_name(name: str, python: str | None = None) -> str:
    """Return the name that the environment gives itself, without importing it, whatever path leads to its file; of a module that
    only `python` has, the name of the class.

    Raises:
        NotFoundError: no such environment or file.
    """
    if name in _BUILT_IN:
        return name
    if python and _is_elsewhere(name):
        return name.rpartition(":")[2]
    return next((info.name for info in _named(name)), ENVIRONMENTS.place(name).member)


def list_environments(extra_dirs: Iterable[Path] = ()) -> list[EnvironmentInfo]:
    """Return the environments that have a name and those in the Python files of `extra_dirs`. Files that do not parse hold none.

    Raises:
        NotFoundError: an extra directory does not exist.
    """
    named = [replace(info, reference=name) for name in ENVIRONMENTS.names() for info in _named(name)]
    return named + [info for folder in extra_dirs for file in _python_files(Path(folder)) for info in _read(file)]


def _named(name: str) -> Iterator[EnvironmentInfo]:
    file, member = ENVIRONMENTS.file(name), ENVIRONMENTS.place(name).member
    return (info for info in _read(file) if info.reference == f"{file}:{member}")


def _python_files(folder: Path) -> list[Path]:
    if not folder.is_dir():
        raise NotFoundError("no such directory of environments", str(folder))
    return sorted(file for file in folder.glob("*.py") if file.is_file())


def _read(file: Path) -> Iterator[EnvironmentInfo]:
    for found in classes_of(file):
        wanted = _METHODS if found.whole else _DERIVED
        name, kind = found.constants.get("name"), found.constants.get("kind", "")
        if wanted <= found.members and not found.abstract and name and kind in KINDS:
            yield EnvironmentInfo(name, kind, f"{file}:{found.name}", found.summary)
