"""What computing devices this machine has, without asking torch."""

from __future__ import annotations

from pathlib import Path


def gpu_count() -> int:
    """GPUs that the driver lists."""
    return len(list(Path("/proc/driver/nvidia/gpus").glob("*")))


def expected_device(device: str) -> str:
    """The type, cuda or cpu, of the device that the setting `runtime.device` will lead to."""
    if device == "auto":
        return "cuda" if gpu_count() else "cpu"
    return device.partition(":")[0]
