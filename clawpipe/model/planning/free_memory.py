"""Check that a GPU has enough free memory for the trainer before it starts: another process may use it."""

from __future__ import annotations

import os
from dataclasses import dataclass

from clawpipe.core.config import NightConfig
from clawpipe.core.config.model import Model
from clawpipe.core.config.runtime import Runtime
from clawpipe.core.config.training import Train
from clawpipe.errors import BusyError, NotFoundError
from clawpipe.model.planning.architecture import architecture_of
from clawpipe.model.planning.hardware import MIB, nvidia_smi
from clawpipe.model.planning.memory import GIB, training
from clawpipe.model.planning.plan import ERROR, is_sharded
from clawpipe.model.policy.spec import PolicySpec


@dataclass(frozen=True)
class GpuMemory:
    """Memory of a GPU in bytes."""

    index: int
    free: float
    total: float


def require_free_memory(start: PolicySpec, train: Train, runtime: Runtime) -> None:
    """Return if the trainer's GPUs have enough free memory, or if that cannot be known.

    The estimate's largest error counts in the trainer's favour. A GPU that is too small when empty is not refused: the planner has
    said so, and the trainer ends with what the driver says.

    Raises:
        BusyError: something else holds the memory.
    """
    rooms = _taken(runtime)
    needed = _needed(start, train, runtime) if rooms else None
    for room in rooms:
        if needed is not None and room.free < needed <= room.total:
            raise BusyError(
                f"GPU {room.index} has {room.free / GIB:.1f} of {room.total / GIB:.1f} GiB free, and the trainer takes at least "
                f"{needed / GIB:.1f}",
                "runtime.device",
                "end what holds it (nvidia-smi shows it), or let vLLM sleep: docs/gateway.md, One GPU for the day and the night",
            )


def _needed(start: PolicySpec, train: Train, runtime: Runtime) -> float | None:
    """Return the least memory of the trainer in bytes; None for a model whose memory is not estimated."""
    model = {"base": start.base, "dtype": start.dtype, "quantization": start.quantization}
    try:
        config = NightConfig(model=Model.model_validate(model), train=train, runtime=runtime)
        return training(architecture_of(start.base), config, "gpu", sharded=is_sharded(config)).bytes * (1 - ERROR)
    except (NotFoundError, ValueError):
        return None


def _taken(runtime: Runtime) -> list[GpuMemory]:
    """Return the GPUs that the trainer will use, according to nvidia-smi and CUDA_VISIBLE_DEVICES."""
    if runtime.device.startswith("cpu"):
        return []
    rooms = {room.index: room for room in _gpu_memory()}
    visible = [word.strip() for word in os.environ.get("CUDA_VISIBLE_DEVICES", ",".join(map(str, rooms))).split(",")]
    order = [rooms[int(word)] for word in visible if word.isdigit() and int(word) in rooms]
    if len(order) < len(visible):  # UUIDs, or slices of a GPU
        return []
    first = int(runtime.device.partition(":")[2] or 0)
    return order[first : first + max(1, runtime.train_processes)]


def _gpu_memory() -> list[GpuMemory]:
    rows = nvidia_smi("index", "memory.free", "memory.total")
    return [GpuMemory(int(row[0]), float(row[1]) * MIB, float(row[2]) * MIB) for row in rows if all(word.isdigit() for word in row)]
