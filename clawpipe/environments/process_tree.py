"""The children of this process, as Linux tells them."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path


def children() -> set[int]:
    """Return the ids of this process's children, those that have ended and wait for it too; none where the system tells none."""
    with suppress(OSError):
        return {int(word) for word in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()}
    return set()


def running_children() -> list[str]:
    """Return the commands of this process's children that still run, sorted."""
    found = []
    for child in children():
        with suppress(OSError):
            if command := Path(f"/proc/{child}/cmdline").read_bytes():  # empty of one that has ended
                found.append(command.replace(b"\0", b" ").decode(errors="replace").strip())
    return sorted(found)
