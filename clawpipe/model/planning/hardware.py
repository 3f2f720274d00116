"""The memory for a night: of a named GPU, of this machine's GPU, or the machine's RAM."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass

from clawpipe.errors import ConfigError

GPUS = {  # total MiB, as the driver reports it
    "rtx-4090": 24564,
    "a100-40": 40960,
    "a100-80": 81920,
    "h100": 81559,
    "h200": 143771,
}
MIB = 1 << 20
_SECONDS = 20


@dataclass(frozen=True)
class Device:
    """`kind` is cpu or gpu; `bytes` is the memory of one device; `count` is their number."""

    name: str
    kind: str
    bytes: float
    count: int = 1


def named(name: str) -> Device:
    """Return a GPU by name, or by size: `24gb` is 24 * 10^9 bytes, which every GPU sold with that size has.

    Raises:
        ConfigError: the name is unknown.
    """
    plain = name.lower().replace(" ", "-").replace("_", "-")
    if plain in GPUS:
        return Device(plain, "gpu", float(GPUS[plain] * MIB))
    if size := re.fullmatch(r"(\d+)gb", plain):
        return Device(plain, "gpu", float(size[1]) * 1e9)
    raise ConfigError(f"the GPU {name!r} is not known", "--gpu", f"use one of {', '.join(GPUS)}, or its size, e.g. 48gb")


def local_device(device: str) -> Device:
    """Return the device that `runtime.device` selects on this machine: the smallest of its GPUs, else its RAM."""
    gpus = [] if device.startswith("cpu") else _gpus()
    if gpus:
        name, size = min(gpus, key=lambda gpu: gpu[1])
        return Device(name, "gpu", size, len(gpus))
    return Device("this machine's RAM", "cpu", float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")))


def _gpus() -> list[tuple[str, float]]:
    """Return (name, bytes) of each GPU that nvidia-smi lists."""
    return [(name, float(size) * MIB) for name, size in nvidia_smi("name", "memory.total") if size.isdigit()]


def nvidia_smi(*fields: str) -> list[list[str]]:
    """Return these fields of each GPU; memory is in MiB. Nothing where there is no driver, or it does not answer."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return []
    query = [tool, f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits"]
    try:
        output = subprocess.run(query, capture_output=True, text=True, timeout=_SECONDS, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return []
    rows = [[word.strip() for word in line.split(",")] for line in output.splitlines()]
    return [row for row in rows if len(row) == len(fields)]
