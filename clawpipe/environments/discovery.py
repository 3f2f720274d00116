"""Find environments: built-in ones by name, those of installed packages, a user's own as `path/to/file.py:ClassName`.

Listing reads source and imports nothing; only the environment that is asked for is loaded.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from clawpipe.environments.base import KINDS, Environment
from clawpipe.errors import ConfigError, NotFoundError
from clawpipe.extensions import ExtensionPoint
from clawpipe.json_types import Options

_METHODS = {"items", "start", "verify"}  # a class that defines them is an environment when its source is read
_DERIVED = {"start", "verify"}  # so is one that defines these on top of another class
_PLAIN = ("tools", "preamble", "items", "distinct_items", "warnings", "verify", "hindsight")  # may not be async
_SINGLE_TURN = {"question", "check"}  # so is one that defines these on top of the class SingleTurn
_FUNCTION = (ast.FunctionDef, ast.AsyncFunctionDef)
# Made by name here, so that no step's key holds the source of environments that the step was not given.
_BUILT_IN = {
    name: f"{__package__}.{name}:{name.capitalize()}Environment"
    for name in ("shop", "letters", "tastes", "conversations", "prompts", "tools")
}
ENVIRONMENTS = ExtensionPoint(
    "environment", "environment.name", _BUILT_IN, members=("name", "kind", "tools", "preamble", "items", "start", "verify")
)


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
    environment = ENVIRONMENTS.make(name, options)
    for member in _PLAIN:
        if inspect.iscoroutinefunction(getattr(environment, member, None)):
            raise ConfigError(f"its {member} is async", name, "write `def`: `start` and the members of an episode may be async")
    if environment.kind not in KINDS:
        raise ConfigError(f"{environment.kind!r} is no kind of environment", name, f"kinds are {', '.join(KINDS)}")
    return environment


def is_built_in(name: str) -> bool:
    """Whether an environment is one of clawpipe's own, and not a user's or a package's."""
    return name in _BUILT_IN


def source_digest(name: str) -> str:
    """Return the digest of the environment's source with what it imports, see `ExtensionPoint.source_digest`."""
    return ENVIRONMENTS.source_digest(name)


def environment_name(name: str) -> str:
    """Return the name that the environment gives itself, without importing it, whatever path leads to its file.

    Raises:
        NotFoundError: no such environment or file.
    """
    if name in _BUILT_IN:
        return name
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
    try:
        tree = ast.parse(file.read_bytes())
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            constants, methods = _constants(node), {item.name for item in node.body if isinstance(item, _FUNCTION)}
            if _is_single_turn(node) and methods >= _SINGLE_TURN:
                constants = {"kind": "chat"} | constants
            elif not methods >= (_DERIVED if node.bases else _METHODS):
                continue
            if {"name", "kind"} <= constants.keys():
                summary = (ast.get_docstring(node) or "").partition("\n")[0]
                yield EnvironmentInfo(constants["name"], constants["kind"], f"{file}:{node.name}", summary)


def _is_single_turn(node: ast.ClassDef) -> bool:
    """Whether a class names SingleTurn, or SingleTurn[...], as a base."""
    bases = [base.value if isinstance(base, ast.Subscript) else base for base in node.bases]
    return any(getattr(base, "attr", getattr(base, "id", "")) == "SingleTurn" for base in bases)


def _constants(node: ast.ClassDef) -> dict[str, str]:
    """Class attributes that are string constants, annotated or not."""
    found = {}
    for item in node.body:
        targets = item.targets if isinstance(item, ast.Assign) else [item.target] if isinstance(item, ast.AnnAssign) else []
        value = getattr(item, "value", None)
        if isinstance(value, ast.Constant) and isinstance(value.value, str):
            found |= {target.id: value.value for target in targets if isinstance(target, ast.Name)}
    return found
