"""`python -m clawpipe.training request.json`: one training run as a process of its own.

Stdout carries progress and nothing else, one JSON object an update; everything that libraries print goes to stderr. The
directory of the request file is the work directory. Exit codes are those of clawpipe.errors; 75 also when memory ran out.
"""

from __future__ import annotations

import gc
import json
import os
import sys
from pathlib import Path
from typing import IO

from pydantic import ValidationError

from clawpipe.errors import BusyError, ClawpipeError, ConfigError
from clawpipe.store.locks import exclusive
from clawpipe.training.request import TrainRequest


def main(argv: list[str]) -> int:
    progress = _claim_stdout()
    try:
        with progress:
            _run(Path(argv[1]), progress)
    except ClawpipeError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return error.exit_code
    return 0


def _claim_stdout() -> IO[str]:
    """The real stdout, for us alone; file descriptor 1 becomes stderr for everybody else."""
    own = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    return own


def _run(file: Path, progress: IO[str]) -> None:
    request = _read(file)
    with exclusive(file.parent / "train.lock", "the training directory"):
        _prepare(request)
        gc.disable()  # what the libraries leave at import lives as long as the process: scanning it again costs a second
        from clawpipe.training.run import train  # after the environment is set: torch reads it once

        gc.freeze()
        gc.enable()
        try:
            train(request, file.parent, lambda facts: print(json.dumps(facts), file=progress))
        except (MemoryError, RuntimeError) as error:
            if not _out_of_memory(error):
                raise
            raise BusyError(f"memory ran out: {error}", str(file), "lower train.pack_tokens, or free memory") from error


def _read(file: Path) -> TrainRequest:
    try:
        return TrainRequest.model_validate_json(file.read_bytes())
    except (OSError, ValidationError) as error:
        raise ConfigError(f"no usable request: {error}", str(file)) from error


def _prepare(request: TrainRequest) -> None:
    threads = request.threads or os.cpu_count() or 1
    os.environ["OMP_NUM_THREADS"] = str(threads)
    os.environ["TQDM_DISABLE"] = "1"  # progress bars have no place in a log
    os.environ["HF_HUB_OFFLINE"] = "1"  # everything is given as a path
    os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"  # without it deterministic algorithms refuse to run on a GPU
    os.environ["CUDA_VISIBLE_DEVICES"] = _one_gpu(request.device, os.environ.get("CUDA_VISIBLE_DEVICES"))


def _one_gpu(device: str, visible: str | None) -> str:
    """The one GPU to show to torch: with more than one the training loop would split every batch between them."""
    index = int(device.partition(":")[2] or 0)
    if visible is None:
        return str(index)
    shown = visible.split(",")
    if index >= len(shown):
        raise ConfigError(f"{device} is not among CUDA_VISIBLE_DEVICES={visible}", "runtime.device")
    return shown[index]


def _out_of_memory(error: Exception) -> bool:
    return isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError" or "DefaultCPUAllocator" in str(error)


if __name__ == "__main__":
    sys.exit(main(sys.argv))
