"""Python files of the user's own, which hold environments or importers."""

from __future__ import annotations

import importlib.util
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

from clawpipe.errors import ConfigError
from clawpipe.machine import USERS_MODULE
from clawpipe.store.digests import sha256_bytes, sha256_file


def import_file(file: Path, fix: str) -> ModuleType:
    """Run the user's file as a module of its own; edited files are run again, since the name holds their digest.

    Modules beside it can be imported, unless an installed one has their name.

    Args:
        file: an absolute path.
        fix: what an error says about naming it.

    Raises:
        ConfigError: the file does not import.
    """
    name = f"{USERS_MODULE}{sha256_bytes(str(file).encode())[:8]}_{sha256_file(file)[:16]}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise ConfigError("not a Python file", str(file), fix)
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
