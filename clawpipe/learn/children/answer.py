"""The main function of a child: it reads its request, reports progress, and ends with the exit code of its error. No heavy imports.

A child is `python -m MODULE request.json`. Its stdout carries only progress, one JSON object per line; everything that
libraries print goes to stderr, which is its log. Exit codes are those of clawpipe.errors; 75 also when memory ran out.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TypeVar

from pydantic import BaseModel, ValidationError

from clawpipe.core.system.machine import as_clawpipe_error
from clawpipe.core.system.processes import let_waiting_threads_sleep
from clawpipe.errors import ClawpipeError, ConfigError
from clawpipe.learn.children.memory import MemoryShortError, lower_mmap_threshold, ran_out
from clawpipe.learn.children.ranks import parted, ranks, write_error

Request = TypeVar("Request", bound=BaseModel)


def answer(run: Callable[[Path, IO[str]], None], argv: Sequence[str]) -> int:
    """Call run(request file, progress), and return the exit code of the error that it raised, or 0."""
    progress = _claim_stdout()
    try:
        with progress:
            run(Path(argv[1]), progress)
    except ClawpipeError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        write_error(error, Path(argv[1]).parent)
        return error.exit_code
    except Exception as error:
        known = as_clawpipe_error(error) or parted(error)  # told by its exit code alone: the one that has gone may say why
        if known is None:
            raise
        print(f"{type(error).__name__}: {known}", file=sys.stderr)
        return known.exit_code
    return 0


def read_request(file: Path, kind: type[Request]) -> Request:
    """Read the child's request.

    Raises:
        ConfigError: the file holds no valid request.
    """
    try:
        return kind.model_validate_json(file.read_bytes())
    except (OSError, ValidationError) as error:
        raise ConfigError(f"no usable request: {error}", str(file)) from error


def prepare(threads: int, device: str) -> None:
    """Set the environment variables that torch and transformers read on import. Call it before importing them."""
    here = ranks()
    os.environ["OMP_NUM_THREADS"] = str(threads or max((os.cpu_count() or 1) // here.local_size, 1))
    let_waiting_threads_sleep()
    lower_mmap_threshold()
    os.environ["TQDM_DISABLE"] = "1"  # progress bars have no place in a log
    os.environ["HF_HUB_OFFLINE"] = "1"  # all models are given as paths
    os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"  # without it deterministic algorithms refuse to run on a GPU
    if here.size == 1:
        os.environ["CUDA_VISIBLE_DEVICES"] = _one_gpu(device, os.environ.get("CUDA_VISIBLE_DEVICES"))


@contextmanager
def memory_may_run_out(where: str, fix: str) -> Iterator[None]:
    """Raise BusyError for the errors that libraries raise when memory runs out."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not ran_out(error):
            raise
        raise MemoryShortError(f"memory ran out: {error}", where, fix) from error


def _claim_stdout() -> IO[str]:
    """Return the real stdout for progress; file descriptor 1 becomes stderr for everything else. Only the main process reports."""
    progress = os.dup(1) if ranks().is_main else os.open(os.devnull, os.O_WRONLY)
    os.dup2(2, 1)
    return os.fdopen(progress, "w", buffering=1)


def _one_gpu(device: str, visible: str | None) -> str:
    """Return the one GPU to show to torch: with several visible, transformers would split every batch between them."""
    index = int(device.partition(":")[2] or 0)
    if visible is None:
        return str(index)
    shown = visible.split(",")
    if index >= len(shown):
        raise ConfigError(f"{device} is not among CUDA_VISIBLE_DEVICES={visible}", "runtime.device")
    return shown[index]
