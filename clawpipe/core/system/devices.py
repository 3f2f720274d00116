"""The computing devices of this machine, found without importing torch, and how long a night occupies them."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path


class Meter:
    """Sums the time for which accelerators were occupied: wall seconds of each process, for each accelerator that it holds."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._lock = threading.Lock()

    @contextmanager
    def occupied(self, device: str, count: int = 1) -> Iterator[None]:
        """Add the time of this block, `count` times, unless `device`, as in `runtime.device`, is the CPU."""
        begun = time.monotonic()
        try:
            yield
        finally:
            if expected_device(device) != "cpu":
                self.add(count * (time.monotonic() - begun))

    def add(self, seconds: float) -> None:
        """Add time for which accelerators elsewhere were occupied."""
        with self._lock:
            self.seconds += seconds


_meter: ContextVar[Meter | None] = ContextVar("meter", default=None)


@contextmanager
def metered() -> Iterator[Meter]:
    """Let the accelerators that are occupied in this block count for one meter."""
    found = Meter()
    token = _meter.set(found)
    try:
        yield found
    finally:
        _meter.reset(token)


def meter() -> Meter:
    """Return the meter of the enclosing block; one that nobody reads, without one."""
    return _meter.get() or Meter()


def gpu_count() -> int:
    """Return the number of GPUs that the driver lists."""
    return len(list(Path("/proc/driver/nvidia/gpus").glob("*")))


def expected_device(device: str) -> str:
    """Return the type, cuda or cpu, of the device that `runtime.device` selects."""
    if device == "auto":
        return "cuda" if gpu_count() else "cpu"
    return device.partition(":")[0]
