"""What the processes and the file systems of a sandbox use, as Linux tells from outside."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from clawpipe.play.sandbox.base import Excess, Limits

_PAGE = os.sysconf("SC_PAGE_SIZE")


def descendants(roots: Iterable[int]) -> Iterator[int]:
    """Yield processes and all their children, by the ids of this process's namespace."""
    waiting = list(roots)
    while waiting:
        process = waiting.pop()
        yield process
        with suppress(OSError):
            for task in Path(f"/proc/{process}/task").iterdir():
                waiting += map(int, (task / "children").read_text().split())


def resident_bytes(roots: Iterable[int]) -> int:
    """Return the resident memory of processes and their children; shared pages count in each."""
    total = 0
    for process in descendants(roots):
        with suppress(OSError, IndexError, ValueError):
            total += int(Path(f"/proc/{process}/statm").read_text().split()[1]) * _PAGE
    return total


def excess_of(roots: Iterable[int], places: Iterable[str], limits: Limits) -> Excess | None:
    """Return the limit that processes and their children, or file systems, exceed."""
    if resident_bytes(roots) > limits.memory_bytes:
        return "memory"
    for place in places:
        with suppress(OSError):
            system = os.statvfs(place)
            if system.f_files - system.f_ffree > limits.files:
                return "files"
    return None
