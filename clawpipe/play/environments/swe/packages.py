"""Installed packages of this Python as an archive, for a sandbox whose own Python lacks them."""

from __future__ import annotations

import io
import re
import tarfile
from collections.abc import Iterable, Iterator
from functools import cache
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path, PurePosixPath

from clawpipe.errors import ConfigError

_NAME = re.compile(r"[A-Za-z0-9._-]+")


@cache
def archive_of(names: tuple[str, ...]) -> bytes:
    """Return packages with what they require, as a tar archive of a folder to be imported from; their compiled files too, which
    name the times of their sources.

    Raises:
        ConfigError: one of them is not installed.
    """
    written = io.BytesIO()
    with tarfile.open(fileobj=written, mode="w", format=tarfile.GNU_FORMAT) as archive:
        for found in _with_requirements(names):
            for place, inside in _files(found):
                archive.add(place, inside, recursive=False, filter=_nobodys)
    return written.getvalue()


def _with_requirements(names: Iterable[str]) -> Iterator[Distribution]:
    waiting, known = list(names), set[str]()
    for name in waiting:
        try:
            found = distribution(name)
        except PackageNotFoundError:
            what, fix = f"{name} is not installed in the Python that runs the environment", f"pip install {name} there"
            raise ConfigError(what, "environment.options.packages", fix) from None
        if (key := found.metadata["Name"].lower()) not in known:
            known.add(key)
            yield found
            waiting += _required(found)


def _required(found: Distribution) -> Iterator[str]:
    """Yield the names of requirements that are installed: what is not is for another machine, or for an extra."""
    for text in found.requires or ():
        if "extra ==" not in text and (name := _NAME.match(text)):
            try:
                distribution(name[0])
            except PackageNotFoundError:
                continue
            yield name[0]


def _files(found: Distribution) -> Iterator[tuple[Path, str]]:
    """Yield files with their places in the archive; scripts, which lie outside of the folder of packages, are left out."""
    for file in sorted(found.files or ()):
        place, inside = Path(str(file.locate())), PurePosixPath(file)
        if ".." not in inside.parts and not inside.is_absolute() and place.is_file():
            yield place, str(inside)


def _nobodys(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member
