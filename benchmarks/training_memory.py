"""Peak memory of a piece of work in this process, and what malloc does with what is freed. On Linux with glibc only."""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Callable
from pathlib import Path

_PROCESS = Path("/proc/self")


def peak_above(work: Callable[[], object]) -> float:
    """Bytes by which the process's resident memory at its peak during `work` exceeds what it held before."""
    gc.collect()
    (_PROCESS / "clear_refs").write_text("5")  # the peak begins anew; other kernels do not forget an old one
    before = _status("VmRSS")
    work()
    return _status("VmHWM") - before


def _status(field: str) -> int:
    lines = dict(line.split(":", 1) for line in (_PROCESS / "status").read_text().splitlines())
    return int(lines[field].split()[0]) * 1024


def keep_freed_memory() -> None:
    """Have malloc do again what it ends up doing if left alone: take single blocks from the system from 32 MiB only (glibc)."""
    ctypes.CDLL(None).mallopt(-3, 32 << 20)  # M_MMAP_THRESHOLD, and its bound DEFAULT_MMAP_THRESHOLD_MAX
