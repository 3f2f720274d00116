"""What lies below a folder: each folder once, whatever links lead to it, and what cannot be read as well."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase

_ANY_DEPTH = "**"


def files_below(folder: str, hidden: bool = False) -> list[str]:
    """Files in a folder and those below it, in order.

    A folder that links lead to counts once, under its own name if it has one. A link that leads nowhere and a folder that cannot
    be listed are named like files: whoever reads them tells why they cannot be read.

    Args:
        folder: where to look.
        hidden: also what is called ".something".
    """
    return sorted(_walk(folder, hidden))


def matching(pattern: str) -> list[str]:
    """Files that a shell's pattern fits, in order; `**` stands for any number of folders."""
    parts = pattern.split("/")
    if _ANY_DEPTH not in parts:
        return sorted(file for file in glob.glob(pattern) if os.path.isfile(file))
    deep = parts.index(_ANY_DEPTH)
    before, wanted = "/".join(parts[:deep]), parts[deep:]
    folders = glob.glob(before) if before else ["/" if deep else "."]
    hidden = any(part.startswith(".") for part in wanted)
    files = [(folder, file) for folder in folders for file in files_below(folder, hidden) if os.path.isfile(file)]
    return sorted(file.removeprefix("./") for folder, file in files if _fits(os.path.relpath(file, folder).split("/"), wanted))


def _walk(folder: str, hidden: bool) -> Iterator[str]:
    folders, links, seen = [folder], list[str](), set[str]()
    while folders or links:
        one = folders.pop() if folders else links.pop()
        if (real := os.path.realpath(one)) in seen:
            continue
        seen.add(real)
        try:
            names = sorted(os.listdir(one))
        except OSError:
            yield one
            continue
        for path in (os.path.join(one, name) for name in names if hidden or not name.startswith(".")):
            if os.path.isdir(path):
                (links if os.path.islink(path) else folders).append(path)
            elif os.path.isfile(path) or not os.path.exists(path):
                yield path


def _fits(parts: Sequence[str], wanted: Sequence[str]) -> bool:
    if not wanted:
        return not parts
    if wanted[0] == _ANY_DEPTH:
        visible = next((number for number, part in enumerate(parts) if part.startswith(".")), len(parts))
        return any(_fits(parts[number:], wanted[1:]) for number in range(visible + 1))
    shown = bool(parts) and (wanted[0].startswith(".") or not parts[0].startswith("."))
    return shown and fnmatchcase(parts[0], wanted[0]) and _fits(parts[1:], wanted[1:])
