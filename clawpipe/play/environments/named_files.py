"""The files that options of extensions name: what they hold decides a result as much as the options do."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from clawpipe.core.store.plain_digests import sha256_once
from clawpipe.core.user_code.extensions import file_of
from clawpipe.play.environments.local_tools import files_of_tools, is_tool_file


def digests_named(options: Any) -> Iterator[str]:
    """Yield the digests of the files that options name: as a path, as `path/to/file.py:NAME`, or as a model's directory."""
    return (sha256_once(file) for option in _texts(options) for file in _files_at(option))


def _files_at(option: str) -> list[Path]:
    """The files of a model's directory, or the one file that an option names, with those of functions that it names as tools; none
    where it is no path, such as a long text."""
    try:
        place = file_of(option) or Path(option).expanduser()
        files = sorted(place.iterdir()) if (place / "config.json").is_file() else [place]
        named = files_of_tools(place) if is_tool_file(option) and place.is_file() else []
        return [file for file in [*files, *named] if file.is_file()]
    except (OSError, RuntimeError):
        return []


def _texts(options: Any) -> Iterator[str]:
    """Yield the texts among options, those in lists and blocks too, such as the models of a jury."""
    if isinstance(options, str):
        yield from filter(None, [options])
    elif isinstance(options, dict | list | tuple):
        inner = options.values() if isinstance(options, dict) else options
        yield from (text for one in inner for text in _texts(one))
