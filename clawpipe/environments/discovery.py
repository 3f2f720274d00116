"""Finding environments: the built-in ones by name, the user's own as `path/to/file.py:ClassName`.

Listing reads source and imports nothing; only the environment that is asked for is loaded.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import inspect
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from clawpipe.environments.base import KINDS, Environment
from clawpipe.environments.raised import told
from clawpipe.errors import ConfigError, NotFoundError
from clawpipe.machine import USERS_MODULE
from clawpipe.store.digests import sha256_bytes, sha256_file
from clawpipe.store.source import code_digest, file_digest

_BUILT_IN = {
    "shop": "ShopEnvironment",
    "letters": "LettersEnvironment",
}  # classes; each in the module of its name
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
    classes: dict[str, Any] = {key: value for key, value in vars(_import(file)).items() if inspect.isclass(value)}
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


def _import(file: Path) -> ModuleType:
    """Run the user's file as a module of its own; edited files are run again, since the name holds their digest.

    Modules beside it can be imported, unless an installed one has their name.
    """
    name = f"{USERS_MODULE}{sha256_bytes(str(file).encode())[:8]}_{sha256_file(file)[:16]}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise ConfigError("not a Python file", str(file), "environment.name is path/to/file.py:ClassName")
    module = importlib.util.module_from_spec(spec)
    if str(file.parent) not in sys.path:
        sys.path.append(str(file.parent))
    sys.modules[name] = module  # dataclasses look their module up while the class is made
    try:
        with _no_bytecode():
            spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[name]
        where, what = _blamed(file, error)
        raise ConfigError(f"it does not import: {what}", where, "run it with python first") from error
    return module


@contextmanager
def _no_bytecode() -> Iterator[None]:
    """Nothing is written beside the user's files, not even by a plan."""
    before, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    try:
        yield
    finally:
        sys.dont_write_bytecode = before


def _blamed(file: Path, error: Exception) -> tuple[str, str]:
    """`file:line` of the user's source that an import failed at, and what failed, in one line."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{error.filename}:{error.lineno}", f"{type(error).__name__}: {error.msg}"
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(file)]
    line = f":{frames[-1].lineno}" if frames else ""
    return f"{file}{line}", f"{type(error).__name__}: {' '.join(str(error).split())}"


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
