"""Import Python files of the user's, which hold environments or importers."""

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
    """Import the user's file as a module; an edited file is imported again, since the module's name holds its digest.

    Modules beside the file can be imported, unless an installed one has the same name.

    Args:
        file: an absolute path.
        fix: advice in an error for a wrong path.

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
    sys.modules[name] = module  # dataclasses look up their module while the class is created
    try:
        with _no_bytecode():
            spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[name]
        where, what = _place_of(file, error)
        raise ConfigError(f"the file does not import: {what}", where, "run it with python first") from error
    return module


@contextmanager
def _no_bytecode() -> Iterator[None]:
    """Write no bytecode beside the user's files."""
    before, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    try:
        yield
    finally:
        sys.dont_write_bytecode = before


def _place_of(file: Path, error: Exception) -> tuple[str, str]:
    """Return `file:line` in the user's source where an import failed, and the error in one line."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{error.filename}:{error.lineno}", f"{type(error).__name__}: {error.msg}"
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(file)]
    line = f":{frames[-1].lineno}" if frames else ""
    return f"{file}{line}", f"{type(error).__name__}: {' '.join(str(error).split())}"
