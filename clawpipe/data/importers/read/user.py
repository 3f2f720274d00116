"""The formats that a name stands for, and a user's own: a function in a file, or an entry point of an installed package.

    def read(record):
        return {"messages": record["dialog"], "reward": record["stars"] / 5}

The function takes the object on each line, and returns a record in a known format, a list of them, or None for a line in another
format. The name may also refer to a `Format`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.core.user_code.extensions import ExtensionPoint, is_reference
from clawpipe.data.importers.formats.table import FAMILIES, FORMATS, Format, Part
from clawpipe.data.importers.strict_json import RefusedError
from clawpipe.errors import ConfigError

AUTO = "auto"
IMPORTERS = ExtensionPoint("importer", "--format")
_SHOWN = 80  # characters of an exception in a reason


def formats_of(format: str) -> list[Format]:
    """Return the formats that a name stands for: "auto", a name in `FORMATS` or `FAMILIES`, or a reference to a user's format.

    Raises:
        ConfigError: the format does not exist.
    """
    if is_reference(format):
        return [load_format(format)]
    families = {AUTO: tuple(FORMATS)} | {name: (name,) for name in FORMATS} | FAMILIES
    if format in families:
        return [FORMATS[name] for name in families[format]]
    if format not in IMPORTERS.names():
        fix = f"one of {', '.join(families)}, or path/to/file.py:NAME"
        raise ConfigError(f"no format {format!r}", "--format", fix)
    return [load_format(format)]


def load_format(name: str) -> Format:
    """Return the format that a reference or the entry point of a package names.

    Raises:
        NotFoundError: no such file, module or name.
        ConfigError: the file does not import, or the name is neither a function nor a format.
    """
    found = IMPORTERS.load(name)
    if isinstance(found, Format):
        return found
    if not callable(found):
        raise ConfigError("neither a function nor a format", name, "name a function as path/to/file.py:NAME or module:NAME")
    return Format(name.rpartition(":")[2], lambda record: True, _reader(found))


def _reader(read: Callable[[JsonObject], Any]) -> Callable[[JsonObject], Iterator[Part]]:
    def parts(record: JsonObject) -> Iterator[Part]:
        for made in _made(read, record):
            if not isinstance(made, dict):
                raise RefusedError("the importer returned no record")
            known = next((known for known in FORMATS.values() if known.read and known.fits(made)), None)
            if known is None or known.read is None:
                raise RefusedError("the importer returned no record of a known format")
            yield from known.read(made)

    return parts


def _made(read: Callable[[JsonObject], Any], record: JsonObject) -> list[Any]:
    try:
        made = read(record)
    except Exception as error:  # an error of the user's code must not stop the other lines
        raise RefusedError(f"the importer failed: {type(error).__name__}: {str(error)[:_SHOWN]}") from error
    if made is None:
        raise RefusedError("not of the importer's format")
    return [made] if isinstance(made, dict) else list(made) if isinstance(made, list | tuple) else [made]
