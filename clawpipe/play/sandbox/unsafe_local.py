"""No sandbox at all: commands run as this user, in a folder of their own. For programs that you would run yourself."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Mapping
from contextlib import suppress

from clawpipe.play.sandbox.base import Excess, Limits
from clawpipe.play.sandbox.running import UMASK, Programs, variables
from clawpipe.play.sandbox.usage import resident_bytes


class UnsafeLocal(Programs):
    """Runs commands in a temporary folder, with this machine's files and network; time, output and memory alone are bounded.

    A command that leaves its session is found no more, and what runs when this process is killed runs on.

    Args:
        limits: `disk_bytes`, `files` and `processes` are not kept.
    """

    def __init__(self, limits: Limits) -> None:
        super().__init__(limits)
        self._folder: str | None = tempfile.mkdtemp(prefix="clawpipe-")
        self._groups: set[int] = set()

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

    def _gone(self) -> bool:
        return self._folder is None

    def _enter(self, argv: list[str], env: Mapping[str, str] | None, seconds: float) -> subprocess.Popen[bytes]:
        own = variables(env) | {"HOME": self._folder or "", "PATH": os.environ.get("PATH", os.defpath), **(env or {})}
        pipe, run = subprocess.PIPE, ["/bin/sh", "-c", 'exec "$@"', "sh", *argv]  # which says 127 where there is no such program
        process = subprocess.Popen(
            run, cwd=self._folder, env=own, stdin=pipe, stdout=pipe, stderr=pipe, start_new_session=True, umask=UMASK
        )
        self._groups.add(process.pid)
        return process

    def _excess(self, process: subprocess.Popen[bytes]) -> Excess | None:
        return "memory" if resident_bytes([process.pid]) > self._limits.memory_bytes else None
