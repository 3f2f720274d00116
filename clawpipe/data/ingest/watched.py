"""The files and folders that a home watches: `clawpipe ingest --watch` names them, and the `ingest` deployment reads them again."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from pydantic import TypeAdapter

from clawpipe.core.store.files import exclusive, write_atomic
from clawpipe.core.store.home import Home
from clawpipe.data.capture.segments import segments, segments_dir
from clawpipe.data.importers.sources.lines import STDIN, is_pipe, shown
from clawpipe.data.importers.sources.tables import HUB
from clawpipe.data.importers.sources.urls import is_url
from clawpipe.data.ingest.intake.options import Options
from clawpipe.errors import ConfigError, DataError

_OPTIONS = TypeAdapter(Options)


def watched(home: Home) -> dict[Options, tuple[str, ...]]:
    """Return the watched paths, by the options that they are read with.

    Raises:
        DataError: the list is damaged.
    """
    file = _file(home)
    try:
        entries = json.loads(file.read_bytes()) if file.exists() else []
        return {_OPTIONS.validate_python(entry["options"]): tuple(entry["paths"]) for entry in entries}
    except (ValueError, TypeError, KeyError) as error:
        raise DataError(f"the list of watched paths is damaged: {error}", str(file), "correct it, or remove it") from error


def sources(home: Home) -> dict[Options, tuple[str, ...]]:
    """Return what is read where no path is given: what is watched, and the segments of the home's gateway.

    Raises:
        DataError: the list is damaged.
    """
    found, captured = watched(home), segments_dir(home)
    if segments(captured):
        found[Options()] = tuple(dict.fromkeys([*found.get(Options(), ()), str(captured)]))
    return found


def watch(home: Home, paths: Sequence[str], options: Options) -> None:
    """Watch these paths from now on, with these options in place of earlier ones.

    Raises:
        ConfigError: a path cannot be read twice, or is a URL with a secret in it.
    """
    with exclusive(home.locks / "watched.lock", "the list of watched paths", wait=True):
        others = _without(home, paths)
        own = [*others.get(options, ()), *_names(paths)]
        _write(home, others | {options: tuple(dict.fromkeys(own))})


def unwatch(home: Home, paths: Sequence[str]) -> None:
    """Watch these paths no more."""
    with exclusive(home.locks / "watched.lock", "the list of watched paths", wait=True):
        _write(home, _without(home, paths))


def _without(home: Home, paths: Sequence[str]) -> dict[Options, tuple[str, ...]]:
    gone = set(_names(paths))
    left = {options: tuple(path for path in theirs if path not in gone) for options, theirs in watched(home).items()}
    return {options: theirs for options, theirs in left.items() if theirs}


def _names(paths: Sequence[str]) -> list[str]:
    """Return the paths as a worker that runs elsewhere finds them; a folder stays one path, for the files that it will hold."""
    return [_name(path) for path in paths]


def _name(path: str) -> str:
    if path == STDIN or is_pipe(path):
        raise ConfigError("a pipe cannot be watched: it can be read once", shown(path), "watch the folder of a file")
    if is_url(path) and shown(path) != path:
        raise ConfigError("a URL with a secret in it is written nowhere", shown(path), "give the secret in the environment")
    if is_url(path) or path.startswith(HUB):
        return path
    return str(Path(path).expanduser().absolute())


def _write(home: Home, entries: dict[Options, tuple[str, ...]]) -> None:
    listed = [
        {"options": _OPTIONS.dump_python(options, mode="json", exclude_defaults=True), "paths": list(paths)}
        for options, paths in entries.items()
    ]
    write_atomic(_file(home), json.dumps(listed, indent=1, ensure_ascii=False).encode())


def _file(home: Home) -> Path:
    return home.root / "watched.json"
