"""Run a child: read its progress, wait for its end, and raise the error that it ended with. Imports no heavy library."""

from __future__ import annotations

import json
import os
import queue
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.core.system import processes
from clawpipe.errors import BusyError, from_exit_code

_TAIL_BYTES = 2000  # bytes of the child's log in the error
KILLED = "most often memory ran out: free some, lower train.pack_tokens or set train.gradient_checkpointing; then run again"
_EXIT_SECONDS = 60.0  # from the child's last line to its exit, while the interpreter shuts down


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
