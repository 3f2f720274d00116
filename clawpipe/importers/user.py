"""Formats of the user's own: a function in a file of theirs, named `path/to/file.py:NAME`, or `module:NAME` of what is installed.

    def read(record):
        return {"messages": record["dialog"], "reward": record["stars"] / 5}

The function is given the object of each line, and returns a record of a known form, several of them, or None for a line that is not
of its format. A `Format` is taken as it is.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from clawpipe.errors import ConfigError, NotFoundError
from clawpipe.importers.formats import FORMATS, Format, Part
from clawpipe.importers.strict_json import RefusedError
from clawpipe.userfiles import import_file

_FIX = "name a function as path/to/file.py:NAME or module:NAME"
_SHOWN = 80  # characters of an exception in a reason


def is_reference(name: str) -> bool:
    return ":" in name


def file_of(name: str) -> Path | None:
    """The file that a reference names; None where it names a module."""
    path = name.rpartition(":")[0]
    return Path(path).expanduser().resolve() if path.endswith(".py") else None


def load_format(name: str) -> Format:
    """The format that a reference names.

    Raises:
        NotFoundError: no such file, module or name.
        ConfigError: the file does not import, or the name is neither a function nor a format.
    """
    member = name.rpartition(":")[2]
    found = getattr(_module(name), member, None)
    if found is None:
        raise NotFoundError(f"no {member!r} in it", name, _FIX)
    if isinstance(found, Format):
        return found
    if not callable(found):
        raise ConfigError("neither a function nor a format", name, _FIX)
    return Format(member, lambda record: True, _reader(found))


def _module(name: str) -> Any:
    file = file_of(name)
    if file is None:
        try:
            return importlib.import_module(name.rpartition(":")[0])
        except ImportError as error:
            raise NotFoundError(f"no such module: {error}", name, _FIX) from error
    if not file.is_file():
        raise NotFoundError("no such file", str(file), _FIX)
    return import_file(file, _FIX)


def _reader(read: Callable[[dict[str, Any]], Any]) -> Callable[[dict[str, Any]], Iterator[Part]]:
    def parts(record: dict[str, Any]) -> Iterator[Part]:
        for made in _made(read, record):
            if not isinstance(made, dict):
                raise RefusedError("the importer returned no record")
            known = next((known for known in FORMATS.values() if known.read and known.fits(made)), None)
            if known is None or known.read is None:
                raise RefusedError("the importer returned no record of a known format")
            yield from known.read(made)

    return parts


def _made(read: Callable[[dict[str, Any]], Any], record: dict[str, Any]) -> list[Any]:
    try:
        made = read(record)
    except Exception as error:  # the user's own code: whatever it does, the other lines are read
        raise RefusedError(f"the importer failed: {type(error).__name__}: {str(error)[:_SHOWN]}") from error
    if made is None:
        raise RefusedError("not of the importer's format")
    return [made] if isinstance(made, dict) else list(made) if isinstance(made, list | tuple) else [made]
