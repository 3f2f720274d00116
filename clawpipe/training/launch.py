"""The parent's side of a training run: start it, pass its progress on, end it in time. Loads no heavy library."""

from __future__ import annotations

import json
import os
import queue
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

from clawpipe import processes
from clawpipe.errors import BusyError, from_exit_code
from clawpipe.store.artifacts import write_atomic
from clawpipe.training.methods import loss_of
from clawpipe.training.request import TrainRequest, is_finished

_TAIL_BYTES = 2000  # of the child's log, in the error
_EXIT_SECONDS = 60.0  # between a child's last word and its end, while the interpreter tears down


def run_training(request: TrainRequest, work: Path, timeout: float, on_progress: Callable[[dict[str, Any]], None]) -> Path:
    """Train in a child process, going on from a checkpoint in `work` where one fits. Returns the outcome directory.

    Args:
        work: directory of this run alone: request, log, lock and checkpoints.
        timeout: seconds.
        on_progress: called with every update's metrics.

    Raises:
        ConfigError, DataError, TrainingError, BusyError: as the child meant it; BusyError also when time ran out.
    """
    loss_of(request.config)  # fail before the child's imports
    if is_finished(request):
        return Path(request.output)
    file = work / "request.json"
    write_atomic(file, request.model_dump_json(indent=2).encode())
    log = work / "train.log"
    with log.open("ab") as stderr:
        child = processes.spawn([sys.executable, "-m", "clawpipe.training", str(file)], env=os.environ, stdout=-1, stderr=stderr)
    lines: queue.Queue[bytes | None] = queue.Queue()
    reader = threading.Thread(target=_pump, args=(child.stdout, lines), daemon=True)
    reader.start()
    patience = 0.0
    try:
        for line in _until(time.monotonic() + timeout, lines):
            on_progress(json.loads(line))
        patience = _EXIT_SECONDS
    except queue.Empty:
        raise BusyError(
            f"training did not end within {timeout:g} s", str(log), "run again: it goes on from its last checkpoint"
        ) from None
    finally:
        code = processes.finish(child, patience)
        reader.join()
    if code:
        raise from_exit_code(code, _reason(log, code), str(log))
    return Path(request.output)


def _pump(stdout: IO[bytes], lines: queue.Queue[bytes | None]) -> None:
    with stdout:
        for line in stdout:
            lines.put(line)
    lines.put(None)


def _until(deadline: float, lines: queue.Queue[bytes | None]) -> Iterator[bytes]:
    """Lines as they come. Raises queue.Empty at the deadline."""
    while (line := lines.get(timeout=max(deadline - time.monotonic(), 0.001))) is not None:
        yield line


def _reason(log: Path, code: int) -> str:
    text = log.read_bytes()[-_TAIL_BYTES:].decode(errors="replace").strip()
    return f"the trainer ended with code {code}; its last words:\n{text}"
