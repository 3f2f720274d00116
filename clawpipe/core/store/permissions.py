"""Who may read what clawpipe writes: the user alone, but for exports and for a shared store at a path of its own."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from clawpipe.core.store.home import Home
from clawpipe.errors import ClawpipeError

OTHERS = 0o077  # the bits of the group and of all others
_OTHERS_WRITE = 0o002
_given: int | None = None  # the umask that this process was started with


class Closed(NamedTuple):
    """What `close` has found: how many files and directories it has closed, and how many it could not."""

    closed: int
    still_open: int


def keep_private() -> None:
    """From now on this process and its children write files and directories that only the user can read.

    An empty directory that is named as the home is closed, too: what is created in it makes it a home.
    """
    global _given
    before = os.umask(OTHERS)
    _given = before if _given is None else _given
    with suppress(ClawpipeError, OSError):  # whoever uses the home says what is wrong with it
        root = Home.from_env().root
        if root.is_dir() and not any(root.iterdir()):
            root.chmod(0o700)


def give_to_user(path: Path) -> None:
    """Set the bits that a file or a whole directory would have had without `keep_private`, for what a user asked to be exported."""
    if _given is not None:
        for found in (path, *path.rglob("*")):
            found.chmod((0o777 if found.is_dir() else 0o666) & ~_given)


def make_shared(directory: Path) -> None:
    """Create a directory of a shared store with all that are missing above it, each as open as the one it lies in."""
    if directory.is_dir():
        return
    make_shared(directory.parent)
    with suppress(FileExistsError):  # another writer's
        directory.mkdir()
        share(directory)


def share(path: Path) -> None:
    """Make a new file or directory as open as the directory it lies in, so that a group can read all of a directory it shares.

    Others never get the right to write; a directory such as /tmp, where everybody has files of their own, passes nothing on.
    """
    mode = path.parent.stat().st_mode
    rights = 0 if mode & stat.S_ISVTX else stat.S_IMODE(mode) & ~_OTHERS_WRITE
    with suppress(OSError):  # a file system without permissions
        path.chmod(rights | 0o700 if path.is_dir() else rights & 0o666 | 0o600)


def close(root: Path) -> Closed:
    """Take the rights of the group and of all others from a directory and everything below it. Symbolic links are not followed."""
    found = [path for path in _below(root) if _is_open(path)]
    for path in found:
        with suppress(OSError):  # another user's, or gone
            path.chmod(stat.S_IMODE(path.stat().st_mode) & ~OTHERS)
    still_open = sum(_is_open(path) for path in found)
    return Closed(len(found) - still_open, still_open)


def of_others(root: Path) -> list[tuple[Path, int]]:
    """Return what below a directory belongs to another user than the directory itself, with the user's number. A night that was
    once run as root leaves such files, which later ones cannot write."""
    owner = root.stat().st_uid
    found: list[tuple[Path, int]] = []
    for path in _below(root):
        with suppress(FileNotFoundError):
            if (user := path.lstat().st_uid) != owner:
                found.append((path, user))
    return found


def _below(root: Path) -> Iterator[Path]:
    yield root
    for directory, directories, files in os.walk(root):
        yield from (Path(directory, name) for name in (*directories, *files))


def _is_open(path: Path) -> bool:
    with suppress(FileNotFoundError):  # a server that runs has removed it
        mode = path.lstat().st_mode
        return bool(mode & OTHERS) and not stat.S_ISLNK(mode)
    return False
