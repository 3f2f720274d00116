"""Measure the peak memory of work in this process, and set how malloc treats freed memory. For Linux with glibc."""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Callable
from pathlib import Path

_PROCESS = Path("/proc/self")


def peak_above(work: Callable[[], object]) -> float:
    """Return by how many bytes the process's peak resident memory during `work` exceeds that before it."""
    gc.collect()
    (_PROCESS / "clear_refs").write_text("5")  # reset the peak; other kernels cannot
    before = _status("VmRSS")
    work()
    return _status("VmHWM") - before


def _status(field: str) -> int:
    lines = dict(line.split(":", 1) for line in (_PROCESS / "status").read_text().splitlines())
    return int(lines[field].split()[0]) * 1024


def keep_freed_memory() -> None:
    """Set malloc to the state that it reaches by default: only blocks from 32 MiB on are mapped one by one (glibc)."""
    ctypes.CDLL(None).mallopt(-3, 32 << 20)  # M_MMAP_THRESHOLD, at its bound DEFAULT_MMAP_THRESHOLD_MAX
