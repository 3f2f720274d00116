"""Kernel locks: they vanish with their holder, however it dies."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from clawpipe.errors import BusyError


@contextmanager
def exclusive(path: Path, what: str, *, wait: bool = False, waits: Callable[[str], None] | None = None) -> Iterator[None]:
    """Hold `path` for the length of the block.

    Args:
        waits: told that it waits, and for whom, where it does.

    Raises:
        BusyError: somebody else holds it and `wait` is False; the message names the process.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            busy = f"{what} is in use by process {os.pread(descriptor, 32, 0).decode() or 'unknown'}"
            if not wait:
                raise BusyError(busy, str(path), "wait until it ends, then try again") from None
            if waits:
                waits(busy)
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, str(os.getpid()).encode(), 0)
        yield
    finally:
        os.close(descriptor)
