"""The parent's side of a training run: start it, pass its progress on, end it in time. Loads no heavy library."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from clawpipe.errors import ClawpipeError
from clawpipe.store.files import write_atomic
from clawpipe.training.methods import require_token_scores, require_trainable
from clawpipe.training.process.child import KilledError, run_child
from clawpipe.training.process.memory import MemoryShortError, kernel_kills
from clawpipe.training.process.ranks import command, forget, reported
from clawpipe.training.request import TrainRequest, is_finished

_RESTARTS = 2  # of a child that the kernel killed for lack of memory, each with packs half as long
_LATE = (
    "run again: it goes on from its last checkpoint. To need less time: a GPU, fewer train.updates x epochs, fewer rollouts; "
    "to be given more: runtime.step_timeout"
)


def run_training(request: TrainRequest, work: Path, timeout: float, on_progress: Callable[[dict[str, Any]], None]) -> Path:
    """Train in a child process, going on from a checkpoint in `work` where one fits. Returns the outcome directory.

    A child that the kernel killed because memory ran out is started again with smaller packs, which train the same
    updates; one that somebody else killed is not, since another try of the same request goes on to the very same bytes.

    Args:
        work: directory of this run alone: request, log, lock and checkpoints.
        timeout: seconds.
        on_progress: called with every update's metrics.

    Raises:
        ConfigError, DataError, TrainingError, BusyError: as the child meant it; BusyError also when time ran out.
    """
    require_trainable(request.dtype)  # fail before the child's imports
    only_text = request.rendering is not None  # its reference is computed beside it
    require_token_scores(request.config, only_text or bool(request.token_scores))
    if is_finished(request):
        return Path(request.output)
    deadline, restarts = time.monotonic() + timeout, 0
    while True:
        killed_before = kernel_kills()
        try:
            _run(request, work, deadline - time.monotonic(), on_progress)
            return Path(request.output)
        except (KilledError, MemoryShortError) as error:
            short = isinstance(error, MemoryShortError) or kernel_kills() != killed_before
            if restarts == _RESTARTS or not short:
                raise
        restarts += 1
        request = request.model_copy(update={"shrink": request.shrink + 1})


def _run(request: TrainRequest, work: Path, seconds: float, on_progress: Callable[[dict[str, Any]], None]) -> None:
    file = work / "request.json"
    write_atomic(file, request.model_dump_json(indent=2).encode())
    words = command(file, request.processes, request.accelerate)
    forget(work)
    try:
        run_child(words, work / "train.log", seconds, on_progress, who="the trainer", late=_LATE)
    except ClawpipeError as error:
        raise reported(work) or error from None
