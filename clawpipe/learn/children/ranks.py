"""Rank, number and errors of the processes of one training run. Imports no heavy library."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
from pathlib import Path
from typing import NamedTuple

from clawpipe.core.store.files import write_atomic
from clawpipe.errors import BusyError, ClawpipeError, ConfigError, error_from
from clawpipe.learn.children.memory import MemoryShortError

_PR_SET_PDEATHSIG = 1
_ERROR = "error.json"
_PARTED = {"DistError", "_DistError", "RendezvousError"}  # by their names, since this file imports no torch
_MEET = (
    "see that each machine runs, and that all reach main_process_ip and main_process_port, which must be free; then run again: "
    "training resumes from its last checkpoint"
)


class Ranks(NamedTuple):
    """Rank and number of processes, on all machines and on this one."""

    rank: int
    size: int
    local_rank: int
    local_size: int

    @property
    def is_main(self) -> bool:
        """Return whether this process reports, and writes what the processes have in common."""
        return self.rank == 0


def ranks() -> Ranks:
    """Return what torchrun's environment variables say; a single process without them."""
    rank, size, local_rank = (int(os.environ.get(name, default)) for name, default in _NAMES)
    return Ranks(rank, size, local_rank, int(os.environ.get("LOCAL_WORLD_SIZE", size)))


_NAMES = (("RANK", 0), ("WORLD_SIZE", 1), ("LOCAL_RANK", 0))


def require_ranks(processes: int) -> Ranks:
    """Return this process's ranks after checking the number of processes.

    Raises:
        ConfigError: fewer or more run: `accelerate launch --cpu`, for example, silently starts a single process.
    """
    here = ranks()
    if here.size != processes:
        raise ConfigError(
            f"{processes} training processes were asked for, and {here.size} run",
            "runtime.train_processes",
            "start as many with torchrun (on several machines: --nnodes times --nproc-per-node), or leave runtime.accelerate out",
        )
    return here


def die_with_parent() -> None:
    """Have the kernel end this process with its parent: torchrun starts each in a session of its own, which no signal reaches."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def write_error(error: ClawpipeError, directory: Path) -> None:
    """Write the error for the parent: torchrun only tells that a process failed."""
    if ranks().size > 1:
        fields = error.as_dict() | {"memory_short": isinstance(error, MemoryShortError)}
        write_atomic(directory / _ERROR, json.dumps(fields).encode())


def read_error(directory: Path) -> ClawpipeError | None:
    """Return the error that a process has written for its parent, as it was raised."""
    try:
        error = json.loads((directory / _ERROR).read_bytes())
    except (OSError, ValueError):
        return None
    return MemoryShortError(error["what"], error["where"], error["fix"]) if error["memory_short"] else error_from(error)


def parted(error: BaseException) -> BusyError | None:
    """Return the error of processes that do not meet, or of which one has gone while others wait for it; None for any other."""
    kinds = {kind.__name__ for kind in type(error).__mro__}
    if not kinds & _PARTED and not (ranks().size > 1 and "gloo" in str(error)):
        return None
    said = str(error).partition("\n")[0]
    return BusyError(f"the training processes do not meet, or one of them has gone: {said}", f"process {ranks().rank}", _MEET)


def clear_error(directory: Path) -> None:
    """Remove the error that an earlier attempt has written."""
    (directory / _ERROR).unlink(missing_ok=True)
