"""Finding environments: the built-in ones by name, the user's own as `path/to/file.py:ClassName`.

Listing reads source and imports nothing; only the environment that is asked for is loaded.
"""

from __future__ import annotations

import ast
import importlib
import inspect
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from clawpipe.environments.base import KINDS, Environment
from clawpipe.environments.raised import told
from clawpipe.errors import ConfigError, NotFoundError
from clawpipe.store.source import code_digest, file_digest
from clawpipe.userfiles import import_file

_BUILT_IN = {
    "shop": "ShopEnvironment",
    "letters": "LettersEnvironment",
}  # classes; each in the module of its name
_WHICH = "environment.name is path/to/file.py:ClassName"
_METHODS = ("items", "start", "verify")  # what makes a class an environment when its source is read
_MEMBERS = ("name", "kind", "tools", "preamble", *_METHODS)


@dataclass(frozen=True)
class EnvironmentInfo:
    """An environment as its source describes it. `reference` is what a config's `environment.name` takes."""

    name: str
    kind: str
    reference: str
    summary: str


def load_environment(name: str, options: dict[str, Any]) -> Environment:
    """The environment that a config names, constructed with its options.

    Raises:
        NotFoundError: no built-in of this name, no such file, or no such class in it.
        ConfigError: the file does not import, the class is no environment, it does not take these options, or its constructor
            raises.
    """
    factory = _built_in_class(name) if name in _BUILT_IN else _user_class(name)
    try:
        inspect.signature(factory).bind(**options)
    except TypeError as error:
        raise ConfigError(f"{name} does not take these options: {error}", "environment.options", _takes(factory)) from None
    try:
        environment = factory(**options)
    except Exception as error:
        raise ConfigError(f"it cannot be made: {told(error)}", name, "run it with python first") from error
    missing = [member for member in _MEMBERS if not hasattr(environment, member)]
    if missing:
        raise ConfigError(f"not an environment: it has no {', '.join(missing)}", name, "see clawpipe/environments/base.py")
    if environment.kind not in KINDS:
        raise ConfigError(f"{environment.kind!r} is no kind of environment", name, f"kinds are {', '.join(KINDS)}")
    return environment


def source_digest(name: str) -> str:
    """Digest of the environment's source with what it imports: of a user's file, the modules that are no installed library's.

    Raises:
        NotFoundError: no such environment or file.
    """
    return code_digest(_module(name)) if name in _BUILT_IN else file_digest(_reference(name)[0])


def environment_name(name: str) -> str:
    """The name that the environment calls itself, without importing it, whatever path leads to its file.

    Raises:
        NotFoundError: no such environment or file.
    """
    if name in _BUILT_IN:
        return name
    file, class_name = _reference(name)
    return next((info.name for info in _read(file) if info.reference == f"{file}:{class_name}"), class_name)


def list_environments(extra_dirs: Iterable[Path] = ()) -> list[EnvironmentInfo]:
    """The built-in environments and those in the Python files of `extra_dirs`. Files that do not parse hold none.

    Raises:
        NotFoundError: an extra directory does not exist.
    """
    found = [info for file in _python_files(Path(__file__).parent) for info in _read(file)]
    built_in = [EnvironmentInfo(info.name, info.kind, info.name, info.summary) for info in found if info.name in _BUILT_IN]
    return built_in + [info for folder in extra_dirs for file in _python_files(Path(folder)) for info in _read(file)]


def _module(name: str) -> str:
    return f"{__package__}.{name}"


def _built_in_class(name: str) -> Callable[..., Environment]:
    return getattr(importlib.import_module(_module(name)), _BUILT_IN[name])


def _user_class(name: str) -> Callable[..., Environment]:
    file, class_name = _reference(name)
    classes: dict[str, Any] = {key: value for key, value in vars(import_file(file, _WHICH)).items() if inspect.isclass(value)}
    if class_name not in classes:
        known = ", ".join(info.reference.rpartition(":")[2] for info in _read(file))
        raise NotFoundError(f"no class {class_name!r} in it", str(file), f"environments there: {known or 'none'}")
    return classes[class_name]


def _reference(name: str) -> tuple[Path, str]:
    path, separator, class_name = name.rpartition(":")
    if not separator or not class_name.isidentifier():
        known = ", ".join(sorted(_BUILT_IN))
        raise NotFoundError(f"no environment {name!r}", "environment.name", f"use {known}, or path/to/file.py:ClassName")
    file = Path(path).expanduser().resolve()
    if not file.is_file():
        raise NotFoundError("no such file", str(file), "environment.name is path/to/file.py:ClassName")
    return file, class_name


def _takes(factory: Callable[..., Environment]) -> str:
    return f"it takes {', '.join(inspect.signature(factory).parameters) or 'none'}"


def _python_files(folder: Path) -> list[Path]:
    if not folder.is_dir():
        raise NotFoundError("no such directory of environments", str(folder))
    return sorted(file for file in folder.glob("*.py") if file.is_file())


def _read(file: Path) -> Iterator[EnvironmentInfo]:
    try:
        tree = ast.parse(file.read_bytes())
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            constants, methods = _constants(node), {item.name for item in node.body if isinstance(item, ast.FunctionDef)}
            if {"name", "kind"} <= constants.keys() and methods.issuperset(_METHODS):
                summary = (ast.get_docstring(node) or "").partition("\n")[0]
                yield EnvironmentInfo(constants["name"], constants["kind"], f"{file}:{node.name}", summary)


def _constants(node: ast.ClassDef) -> dict[str, str]:
    """Class attributes that are string constants, annotated or not."""
    found = {}
    for item in node.body:
        targets = item.targets if isinstance(item, ast.Assign) else [item.target] if isinstance(item, ast.AnnAssign) else []
        value = getattr(item, "value", None)
        if isinstance(value, ast.Constant) and isinstance(value.value, str):
            found |= {target.id: value.value for target in targets if isinstance(target, ast.Name)}
    return found
