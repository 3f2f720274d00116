"""Running out of memory: how a process learns of it, and how its parent does. Loads no heavy library."""

from __future__ import annotations

import ctypes
import sys
from pathlib import Path

from clawpipe.errors import BusyError

_VMSTAT = Path("/proc/vmstat")
_M_MMAP_THRESHOLD = -3  # of glibc's malloc.h


class MemoryShortError(BusyError):
    """One of several processes had too little memory; alone it would have halved its packs."""


def give_freed_memory_back() -> None:
    """Have malloc take blocks of 256 KiB and more from the system one by one, and give each back when it is freed.

    Left alone it keeps them, and the gaps between what autograd holds: twice the memory that a step needs, for a twentieth
    of its time (135 million weights, 512 tokens, glibc 2.36).
    """
    if sys.platform == "linux" and hasattr(libc := ctypes.CDLL(None), "mallopt"):
        libc.mallopt(_M_MMAP_THRESHOLD, 256 << 10)


def ran_out(error: BaseException) -> bool:
    """Whether memory of the CPU or of a GPU ran out: torch has a class for the latter and says the former in a RuntimeError."""
    return isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError" or "DefaultCPUAllocator" in str(error)


def kernel_kills() -> int:
    """How many processes the kernel has killed for lack of memory since it started; 0 where it does not say.

    It tells a child that needs less memory from one that somebody ended, which may go on just as it was.
    """
    try:
        fields = dict(line.split() for line in _VMSTAT.read_text().splitlines())
    except (OSError, ValueError):
        return 0
    return int(fields.get("oom_kill", 0))
