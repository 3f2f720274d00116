"""The memory that a night runs in: a named GPU, the one at hand, or the machine's own."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass

from clawpipe.errors import ConfigError

GPUS = {  # MiB in all, as the driver reports them
    "rtx-4090": 24564,
    "a100-40": 40960,
    "a100-80": 81920,
    "h100": 81559,
    "h200": 143771,
}
_MIB = 1 << 20


@dataclass(frozen=True)
class Device:
    """`kind` is cpu or gpu; `bytes` is the memory of one; `count` how many there are."""

    name: str
    kind: str
    bytes: float
    count: int = 1


def named(name: str) -> Device:
    """A GPU by name, or by size: `24gb` is 24 * 10^9 bytes, which every GPU sold as such has.

    Raises:
        ConfigError: no such GPU is known.
    """
    plain = name.lower().replace(" ", "-").replace("_", "-")
    if plain in GPUS:
        return Device(plain, "gpu", float(GPUS[plain] * _MIB))
    if size := re.fullmatch(r"(\d+)gb", plain):
        return Device(plain, "gpu", float(size[1]) * 1e9)
    raise ConfigError(f"no GPU {name!r} is known", "--gpu", f"use one of {', '.join(GPUS)}, or its size, e.g. 48gb")


def at_hand(device: str) -> Device:
    """What `runtime.device` leads to on this machine: the smallest of its GPUs, else its RAM."""
    gpus = [] if device.startswith("cpu") else _gpus()
    if gpus:
        name, size = min(gpus, key=lambda gpu: gpu[1])
        return Device(name, "gpu", size, len(gpus))
    return Device("this machine's RAM", "cpu", float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")))


def _gpus() -> list[tuple[str, float]]:
    """(name, bytes) of each GPU that the driver's own tool lists."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return []
    query = [tool, "--query-gpu=name,memory.total", "--format=csv,noheader,nounits"]
    try:
        told = subprocess.run(query, capture_output=True, text=True, timeout=20, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return []
    rows = [line.rpartition(",") for line in told.splitlines()]
    return [(name.strip(), float(size) * _MIB) for name, _, size in rows if size.strip().isdigit()]
