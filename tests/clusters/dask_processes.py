"""A scheduler and workers of Dask, each a process as a user starts it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from clawpipe.core.system.ports import LOOPBACK, free_port

_PYTHON = [sys.executable, "-m"]


@contextmanager
def scheduler() -> Iterator[str]:
    """Yield the address of a scheduler."""
    address = f"tcp://{LOOPBACK}:{(port := free_port())}"
    with _running([*_PYTHON, "distributed.cli.dask_scheduler", "--host", LOOPBACK, "--port", str(port), "--no-dashboard"]):
        yield address


@contextmanager
def worker(address: str, home: Path, **environment: str) -> Iterator[subprocess.Popen]:
    """Run a worker, with a home of its own and no nanny: if it dies, its machine is gone."""
    options = ["--host", LOOPBACK, "--nthreads", "2", "--no-nanny", "--no-dashboard", "--local-directory", str(home / "dask")]
    own = {"CLAWPIPE_HOME": str(home / "home"), **environment}
    with _running([*_PYTHON, "distributed.cli.dask_worker", address, *options], **own) as process:
        yield process


@contextmanager
def _running(command: list[str], **environment: str) -> Iterator[subprocess.Popen]:
    process = subprocess.Popen(command, env=os.environ | environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield process
    finally:
        process.kill()
        process.wait()
