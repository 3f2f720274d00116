"""No sandbox at all: commands run as this user, in a folder of their own. For programs that you would run yourself."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress

from clawpipe.sandbox.base import Excess, Limits, Result
from clawpipe.sandbox.running import run, variables
from clawpipe.sandbox.usage import resident_bytes


class UnsafeLocal:
    """Runs commands in a temporary folder, with this machine's files and network; time, output and memory alone are bounded.

    A command that leaves its session is found no more.

    Args:
        limits: `disk_bytes`, `files` and `processes` are not kept.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._folder: str | None = tempfile.mkdtemp(prefix="clawpipe-")
        self._groups: set[int] = set()

    def exec(
        self,
        command: str | Sequence[str],
        *,
        stdin: bytes = b"",
        seconds: float | None = None,
        env: Mapping[str, str] | None = None,
        output_bytes: int | None = None,
    ) -> Result:
        if self._folder is None:
            return Result(None, b"", b"", "died")
        limits, pipe = self._limits, subprocess.PIPE
        bounds = (limits.seconds if seconds is None else seconds, limits.output_bytes if output_bytes is None else output_bytes)
        argv = ["/bin/sh", "-c", command] if isinstance(command, str) else list(command)
        own = variables(env) | {"HOME": self._folder, "PATH": os.environ.get("PATH", os.defpath), **(env or {})}
        try:
            process = subprocess.Popen(
                argv, cwd=self._folder, env=own, stdin=pipe, stdout=pipe, stderr=pipe, start_new_session=True
            )
        except OSError as error:
            return Result(127, b"", f"{argv[0]}: {error.strerror}".encode())
        self._groups.add(process.pid)
        return run(process, stdin, bounds, lambda: self._excess(process), self.end_processes)

    def end_processes(self) -> None:
        for group in self._groups:
            with suppress(ProcessLookupError):
                os.killpg(group, signal.SIGKILL)
        self._groups.clear()

    def close(self) -> None:
        self.end_processes()
        if self._folder:
            shutil.rmtree(self._folder, ignore_errors=True)
        self._folder = None

    def _excess(self, process: subprocess.Popen[bytes]) -> Excess | None:
        return "memory" if resident_bytes([process.pid]) > self._limits.memory_bytes else None
