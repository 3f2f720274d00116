"""Child processes for training and annotation: what parent and child have in common. Imports no heavy library.

A child is `python -m MODULE request.json`. Its stdout carries only progress, one JSON object per line; everything that
libraries print goes to stderr, which is its log. Exit codes are those of clawpipe.errors; 75 also when memory ran out.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TypeVar

from pydantic import BaseModel, ValidationError

from clawpipe import processes
from clawpipe.errors import BusyError, ClawpipeError, ConfigError, from_exit_code
from clawpipe.json_types import JsonObject
from clawpipe.machine import as_clawpipe_error
from clawpipe.training.process.memory import MemoryShortError, give_freed_memory_back, ran_out
from clawpipe.training.process.ranks import ranks, report

Request = TypeVar("Request", bound=BaseModel)

_TAIL_BYTES = 2000  # bytes of the child's log in the error
KILLED = "most often memory ran out: free some, lower train.pack_tokens or set train.gradient_checkpointing; then run again"
_EXIT_SECONDS = 60.0  # from the child's last line to its exit, while the interpreter shuts down


# ---- the parent's side


class KilledError(BusyError):
    """The child was ended by SIGKILL: by the kernel when memory ran out, or by a user."""


def run_child(
    command: Sequence[str], log: Path, timeout: float, on_progress: Callable[[JsonObject], None], *, who: str, on_timeout: str
) -> None:
    """Run a child to its end, or until the timeout.

    Args:
        log: file to which the child's stderr is appended.
        timeout: seconds.
        who: name of the child in error messages, e.g. "the trainer".
        on_timeout: advice to the user when the timeout has passed.

    Raises:
        ConfigError, DataError, TrainingError, BusyError: by the child's exit code; BusyError also on timeout.
    """
    with log.open("ab") as stderr:
        child = processes.spawn(command, env=os.environ, stdout=-1, stderr=stderr)
    lines: queue.Queue[bytes | None] = queue.Queue()
    reader = threading.Thread(target=_pump, args=(child.stdout, lines), daemon=True)
    reader.start()
    patience = 0.0
    try:
        for line in _until(time.monotonic() + timeout, lines):
            on_progress(json.loads(line))
        patience = _EXIT_SECONDS
    except queue.Empty:
        raise BusyError(f"{who} did not end within {timeout:g} s", str(log), on_timeout) from None
    finally:
        code = processes.finish(child, patience)
        reader.join()
    if code:
        failure = f"{who} ended with code {code}; its last words:\n{_last_words(log)}"
        raise KilledError(failure, str(log), KILLED) if code == -signal.SIGKILL else from_exit_code(code, failure, str(log))


def _pump(stdout: IO[bytes], lines: queue.Queue[bytes | None]) -> None:
    with stdout:
        for line in stdout:
            lines.put(line)
    lines.put(None)


def _until(deadline: float, lines: queue.Queue[bytes | None]) -> Iterator[bytes]:
    """Yield lines as they come. Raises queue.Empty at the deadline."""
    while (line := lines.get(timeout=max(deadline - time.monotonic(), 0.001))) is not None:
        yield line


def _last_words(log: Path) -> str:
    return log.read_bytes()[-_TAIL_BYTES:].decode(errors="replace").strip()


# ---- the child's side


def answer(run: Callable[[Path, IO[str]], None], argv: Sequence[str]) -> int:
    """Call run(request file, progress), and return the exit code of the error that it raised, or 0."""
    progress = _claim_stdout()
    try:
        with progress:
            run(Path(argv[1]), progress)
    except ClawpipeError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        report(error, Path(argv[1]).parent)
        return error.exit_code
    except Exception as error:
        known = as_clawpipe_error(error)
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
    give_freed_memory_back()
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
