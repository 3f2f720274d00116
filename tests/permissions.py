"""Who may read what was written."""

from __future__ import annotations

import os
import stat
import subprocess
from pathlib import Path


def bits(path: Path) -> int:
    """The permission bits."""
    return stat.S_IMODE(path.stat().st_mode)


def umask() -> int:
    """The umask of this process, and so of its children."""
    os.umask(found := os.umask(0o077))
    return found


def open_to_others(root: Path) -> list[str]:
    """What `find ROOT -perm /077` prints, without symbolic links."""
    found = subprocess.run(["find", str(root), "!", "-type", "l", "-perm", "/077"], capture_output=True, text=True, check=True)
    return found.stdout.splitlines()
