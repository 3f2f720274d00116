"""Kernel locks: they vanish with their holder, however it dies."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from clawpipe.errors import BusyError


@contextmanager
def exclusive(path: Path, what: str, *, wait: bool = False) -> Iterator[None]:
    """Hold `path` for the length of the block.

    Raises:
        BusyError: somebody else holds it and `wait` is False; the message names the process.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            holder = os.pread(descriptor, 32, 0).decode() or "unknown"
            raise BusyError(f"{what} is in use by process {holder}", str(path), "wait until it ends, then try again") from None
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, str(os.getpid()).encode(), 0)
        yield
    finally:
        os.close(descriptor)
