"""The computing devices of this machine, found without importing torch."""

from __future__ import annotations

from pathlib import Path


def gpu_count() -> int:
    """Return the number of GPUs that the driver lists."""
    return len(list(Path("/proc/driver/nvidia/gpus").glob("*")))


def expected_device(device: str) -> str:
    """Return the type, cuda or cpu, of the device that `runtime.device` selects."""
    if device == "auto":
        return "cuda" if gpu_count() else "cpu"
    return device.partition(":")[0]
