"""The processes that one training run consists of, as each of them and their parent see it. Loads no heavy library."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
from pathlib import Path
from typing import NamedTuple

from clawpipe import errors
from clawpipe.errors import ClawpipeError, ConfigError
from clawpipe.store.files import write_atomic
from clawpipe.training.process.memory import MemoryShortError

_PR_SET_PDEATHSIG = 1
_ERROR = "error.json"


class Ranks(NamedTuple):
    """`rank` of `size` processes on all machines; `local_rank` of `local_size` on this one."""

    rank: int
    size: int
    local_rank: int
    local_size: int

    @property
    def is_main(self) -> bool:
        """Whether this is the process that reports, and writes what all have in common."""
        return self.rank == 0


def ranks() -> Ranks:
    """What torchrun told this process; alone without it."""
    rank, size, local_rank = (int(os.environ.get(name, default)) for name, default in _NAMES)
    return Ranks(rank, size, local_rank, int(os.environ.get("LOCAL_WORLD_SIZE", size)))


_NAMES = (("RANK", 0), ("WORLD_SIZE", 1), ("LOCAL_RANK", 0))


def require_ranks(processes: int) -> Ranks:
    """This process among those that were asked for.

    Raises:
        ConfigError: there are fewer or more: `accelerate launch --cpu`, for one, starts a single process and says nothing.
    """
    here = ranks()
    if here.size != processes:
        raise ConfigError(
            f"{processes} training processes were asked for, and {here.size} run",
            "runtime.train_processes",
            "start as many with torchrun (on several machines: --nnodes times --nproc-per-node), or leave runtime.accelerate out",
        )
    return here


def command(file: Path, processes: int, accelerate: str | None) -> list[str]:
    """How to start the processes of the request in `file`."""
    module = "clawpipe.training" if processes == 1 and accelerate is None else "clawpipe.training.process.torchrun"
    return [sys.executable, "-m", module, str(file)]


def die_with_parent() -> None:
    """Have the kernel end this process when its parent ends: torchrun gives each a session of its own, which no signal reaches."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def report(error: ClawpipeError, directory: Path) -> None:
    """Leave what went wrong for the parent: torchrun passes on that a process failed, and no more."""
    if ranks().size > 1:
        write_atomic(directory / _ERROR, json.dumps(error.as_dict()).encode())


def reported(directory: Path) -> ClawpipeError | None:
    """What a process has left, as it was raised."""
    try:
        told = json.loads((directory / _ERROR).read_bytes())
    except (OSError, ValueError):
        return None
    kind = MemoryShortError if told["error"] == MemoryShortError.__name__ else getattr(errors, told["error"], ClawpipeError)
    return kind(told["what"], told["where"], told["fix"])


def forget(directory: Path) -> None:
    """Remove what processes of an earlier try have left."""
    (directory / _ERROR).unlink(missing_ok=True)
