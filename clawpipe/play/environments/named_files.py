"""The files that options of extensions name: what they hold decides a result as much as the options do."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

from clawpipe.core.store.plain_digests import sha256_once, sha256_plain
from clawpipe.core.user_code.extensions import file_of
from clawpipe.play.environments.local_tools import files_of_tools, is_tool_file

_MOST_FILES, _LARGEST = 20_000, 1 << 20  # of a folder, in order of their names; and bytes of one that is read
_NOT_READ = {"__pycache__", ".git", ".hg", ".svn"}


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


def folders_digest(options: Mapping[str, Any]) -> str:
    """Return the digest of the folders that a sandbox shows, `sandbox_options.paths`: an agent may be made of them; "" of none.

    It holds what files hold, but of large ones their size alone, and where packages of Python are installed, their names and
    versions. Of tens of thousands of files the first count. A folder's place is no part of it.
    """
    given = options.get("sandbox_options")
    paths = given.get("paths") if isinstance(given, Mapping) else None
    named = [path for path in paths if isinstance(path, str)] if isinstance(paths, list | tuple) else []
    folders = [folder for path in named if (folder := _folder_at(path))]
    return sha256_plain([list(_contents(folder)) for folder in folders]) if folders else ""


def _folder_at(path: str) -> Path | None:
    """Return the folder at a path; None where this user finds none, which the sandbox says."""
    try:
        folder = Path(path).expanduser()
        return folder if folder.is_dir() else None
    except (OSError, RuntimeError):
        return None


def _contents(folder: Path) -> Iterator[list[str | int]]:
    """Yield what stands for each file of a folder, in order."""
    for file in islice(_walked(folder), _MOST_FILES):
        told: list[str | int] = [_plain(file.relative_to(folder).as_posix())]
        try:
            found = file.lstat()
            if stat.S_ISLNK(found.st_mode):
                told.append(_plain(os.readlink(file)))
            elif stat.S_ISREG(found.st_mode):
                told.append(sha256_once(file) if found.st_size <= _LARGEST else found.st_size)
        except OSError:  # gone meanwhile, or not for this user to read
            pass
        yield told


def _plain(name: str) -> str:
    """Return a name, in which bytes that are no UTF-8 are escaped."""
    return os.fsencode(name).decode(errors="backslashreplace")


def _walked(folder: Path) -> Iterator[Path]:
    """Yield the files below a folder in order; in place of a virtual environment or of `site-packages` what names its packages."""
    for root, folders, files in os.walk(folder):
        pattern = "lib*/python*/site-packages/*.dist-info" if "pyvenv.cfg" in files else "*.dist-info"
        if packages := sorted(Path(root).glob(pattern)):
            folders.clear()
            yield from packages
            continue
        folders[:] = sorted(set(folders) - _NOT_READ)
        yield from (Path(root, name) for name in sorted(files))
