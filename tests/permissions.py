"""Who may read what was written."""

from __future__ import annotations

import os
import stat
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def bits(path: Path) -> int:
    """The permission bits."""
    return stat.S_IMODE(path.stat().st_mode)


def umask() -> int:
    """The umask of this process, and so of its children."""
    os.umask(found := os.umask(0o077))
    return found


@contextmanager
def private_files() -> Iterator[None]:
    """Files that this process writes in the block are closed to others, as those of clawpipe's own processes are."""
    before = os.umask(0o077)
    try:
        yield
    finally:
        os.umask(before)


def open_to_others(root: Path) -> list[str]:
    """What `find ROOT -perm /077` prints, without symbolic links."""
    found = subprocess.run(["find", str(root), "!", "-type", "l", "-perm", "/077"], capture_output=True, text=True, check=True)
    return found.stdout.splitlines()
