"""The children of this process, as Linux tells them, and who ends with whom."""

from __future__ import annotations

import ctypes
import os
import signal
from contextlib import suppress
from pathlib import Path

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36  # linux/prctl.h


def end_with_parent() -> None:
    """Let the kernel kill this process when its parent ends."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def become_subreaper() -> None:
    """Let daemons that this process's children start stay below it."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def _prctl(option: int, value: int) -> None:
    prctl = getattr(ctypes.CDLL(None), "prctl", None)  # exists on Linux only
    if prctl is not None:
        prctl(option, value, 0, 0, 0)


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
