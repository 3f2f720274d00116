"""Find environments: built-in ones by name, those of installed packages, a user's own as `path/to/file.py:ClassName`.

Listing reads source and imports nothing; only the environment that is asked for is loaded.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from clawpipe.core.basics.json_types import Options
from clawpipe.core.store.plain_digests import sha256_plain
from clawpipe.core.user_code.extensions import ExtensionPoint, file_of
from clawpipe.errors import ConfigError, NotFoundError
from clawpipe.play.environments.base import KINDS, Environment
from clawpipe.play.environments.interpreter import interpreter
from clawpipe.play.environments.libraries.naming import LIBRARIES, file_in, installed_version, module_in, name_of
from clawpipe.play.environments.module_sources import module_digest
from clawpipe.play.environments.options import Option, config_model, config_of, described_options
from clawpipe.play.environments.source_classes import classes_of

_METHODS = {"items", "start", "verify"}  # a class that has them is an environment when its source is read
_DERIVED = {"start", "verify"}  # so is one that defines these on top of another class
_PLAIN = ("tools", "preamble", "items", "distinct_items", "warnings", "verify", "hindsight")  # may not be async
_SINGLE_TURN = {"question", "check"}  # so is one that defines these on top of the class SingleTurn
# Made by name here, so that no step's key holds the source of environments that the step was not given.
_BUILT_IN = {
    name: f"{__package__}.{name}:{name.capitalize()}Environment"
    for name in ("shop", "letters", "stories", "tastes", "conversations", "prompts", "tools", "gui", "agent")
} | {
    "terminal": f"{__package__}.terminal.environment:TerminalEnvironment",
    "swe": f"{__package__}.swe.environment:SweEnvironment",
}
_STARTS_PROGRAMS = {"terminal", "swe", "gui"}  # built-in ones whose episodes have processes of their own, so that deadlines hold
_NAMES_INPUTS = {"terminal", "swe", "agent"}  # built-in ones whose options name folders, images and programs
_USES_PYTHON = {"swe"}  # built-in ones that put packages of their Python into a sandbox
_USES_PACKAGES = {"gui": ("miniwob", "playwright")}  # built-in ones whose behaviour packages decide, which may lie elsewhere
ENVIRONMENTS = ExtensionPoint(
    "environment",
    "environment.name",
    _BUILT_IN,
    members=("name", "kind", "tools", "preamble", "items", "start", "verify"),
    families=LIBRARIES,
)

# What plays the episodes of environments in which the policy is asked from outside: a function of a shard's request, its
# environment and an engine, which returns rows. Made by name, since it stands on rooms above this one.
_PROGRAMS = f"{__package__}".replace(
    "play.environments", "serve.programs"
)  # of parts: it is in the keys of the steps that it plays for alone
PLAYERS = ExtensionPoint("player", "environment.name", {"agent": f"{_PROGRAMS}.shard:play"})


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
        if options and is_built_in(name):  # a user's own takes what it takes, whatever types it names
            _check_arguments(name, factory, options)
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
    options = described_options(factory)
    return replace(known, reference=name), options[1:] if ENVIRONMENTS.family(name) else options


def check_options(name: str, options: Options) -> None:
    """Check options without making the environment: all of one with a `Config`, of another one those that have a simple type.

    Raises:
        NotFoundError, ConfigError: see `load_environment`.
    """
    factory = ENVIRONMENTS.load(name)
    if (model := config_model(factory)) is not None:
        config_of(name, model, options)
    else:
        _check_arguments(name, factory, options)


def _check_arguments(name: str, factory: Any, options: Options) -> None:
    for option in described_options(factory):
        if option.name in options and not option.takes(options[option.name]):
            raise ConfigError(
                f"it takes {option.type}", f"environment.options.{option.name}", f"`clawpipe env show {name}` shows it"
            )


def is_built_in(name: str) -> bool:
    """Whether an environment is one of clawpipe's own, and not a user's or a package's."""
    return name in _BUILT_IN


def takes_python(name: str) -> bool:
    """Whether an environment may run in another Python: a user's may, and a built-in one with packages of its own."""
    return not is_built_in(name) or name in _USES_PACKAGES


def has_own_process(name: str) -> bool:
    """Whether an environment runs in processes of its own: a user's does, and a built-in one that starts programs."""
    return not is_built_in(name) or name in _STARTS_PROGRAMS


def source_digest(name: str, python: str | None = None) -> str:
    """Return the digest of the environment's source with what it imports, see `ExtensionPoint.source_digest`.

    Args:
        python: that it runs in, whose version and packages are digested, too; a module may lie among these alone. Of a built-in one
            that uses packages, those of this Python are.
    """
    if name in PLAYERS.built_in:
        return sha256_plain([ENVIRONMENTS.source_digest(name), PLAYERS.source_digest(name)])
    if library := ENVIRONMENTS.family(name):
        return _librarys_digest(library, name, python)
    if python is None and name in _USES_PYTHON:
        python = sys.executable
    if python is None:
        own = ENVIRONMENTS.source_digest(name)
        return sha256_plain([own, *map(_version, _USES_PACKAGES[name])]) if name in _USES_PACKAGES else own
    there = interpreter(python).digest
    if _is_elsewhere(name):
        return sha256_plain([name, module_digest(ENVIRONMENTS.place(name).module, python), there])
    return sha256_plain([ENVIRONMENTS.source_digest(name), there])


def inputs_digest(name: str, options: Options) -> str:
    """Return the digest of what the options of a built-in environment that starts programs name: task folders, an image, folders
    that the sandbox shows.

    Raises:
        NotFoundError, DataError, ConfigError: it is not there.
    """
    if name not in _NAMES_INPUTS:
        return ""
    from clawpipe.play.environments.named_files import folders_digest  # which a user's Python need not have

    own, shown = ENVIRONMENTS.load(name).inputs_digest(options), folders_digest(options)
    return sha256_plain([own, shown]) if shown else own


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def _librarys_digest(library: str, name: str, python: str | None) -> str:
    """Return the digest of another library's environment: of what plays it, of the library, and of a user's file or module that it
    names."""
    from clawpipe.core.store.source import file_digest  # which a user's Python need not have

    word = name.partition(":")[2]
    there = interpreter(python).digest if python else installed_version(library)
    file, module = file_in(word), module_in(library, word)
    own = [file_digest(file)] if file and file.is_file() else [module_digest(module, python)] if module else []
    return sha256_plain([name, ENVIRONMENTS.source_digest(name), there, *own])


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
    if library := ENVIRONMENTS.family(name):
        return name_of(library, name.partition(":")[2])
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


def list_libraries() -> list[EnvironmentInfo]:
    """Return the libraries whose environments have names, each as one line; none of them is imported."""
    return [replace(info, reference=f"{library}:ID") for library in LIBRARIES for info in _named(f"{library}:ID")]


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
        if wanted <= found.members and not found.abstract and name:
            summary = found.summary if kind in KINDS else f"cannot be played: its kind is none of {', '.join(KINDS)}"
            yield EnvironmentInfo(name, kind, f"{file}:{found.name}", summary)
