"""Write files that survive a kill or a power cut, and read the names and manifests of artifacts."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import shutil
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.core.system import faults
from clawpipe.errors import BusyError, ConfigError

MANIFEST = "manifest.json"
_LOST = {errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.EIO}


class InUseError(BusyError):
    """Another process holds what this one needs alone."""


def is_name(part: str) -> bool:
    """Whether a text can name an artifact: its path stays below the store."""
    return part.replace("_", "").replace("-", "").isalnum()


def is_lost(error: OSError) -> bool:
    """Whether an error means that a file is not there or that its disk is damaged, and not that this process may not read it, or
    has too many files open: nothing may be removed or computed anew for that."""
    return error.errno in _LOST


def read_manifest(directory: Path) -> JsonObject:
    """Read the manifest of an artifact: kind, name, files."""
    return json.loads((directory / MANIFEST).read_bytes())


def fsync_tree(directory: Path) -> None:
    """Force a directory and all below it to disk."""
    for path in (*directory.rglob("*"), directory):
        fsync(path)


def fsync(path: Path) -> None:
    """Force a file or a directory's entries to disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_atomic(path: Path, data: bytes | Iterable[bytes], mode: int = 0o666) -> None:
    """Replace the content of `path` atomically by bytes, or by all of several. `mode` is that of the new file, before the umask."""
    path.parent.mkdir(parents=True, exist_ok=True)
    hidden = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        hidden.touch(mode)
        with hidden.open("wb") as file:
            file.writelines([data] if isinstance(data, bytes) else data)
        fsync(hidden)
        faults.kill_point("write_atomic.before_rename", path.name)
        os.replace(hidden, path)
    except OSError:
        with suppress(OSError):
            hidden.unlink()
        raise
    fsync(path.parent)


def require_place(path: Path) -> None:
    """Make sure, before long work, that a file or folder can be made at `path`; nothing is made.

    Raises:
        ConfigError: it cannot be.
    """
    there = next(place for place in path.absolute().parents if place.exists())
    if not there.is_dir():
        raise ConfigError("a file stands where a folder is needed", str(there), "name another place")
    if not os.access(there, os.W_OK):
        raise ConfigError("nothing can be written there", str(there), "name a place where you may write")


def clear(directory: Path, *, ignore_errors: bool = False) -> None:
    """Remove a directory with all in it; where it is a link to one on another disk, all in that one, and the link stays.

    Args:
        ignore_errors: what cannot be removed stays, and the rest goes.

    Raises:
        OSError: something cannot be removed.
    """
    if not directory.is_symlink():
        shutil.rmtree(directory, ignore_errors=ignore_errors)
        return
    for found in list(directory.iterdir()) if directory.is_dir() else ():  # the other disk may be away
        with suppress(OSError) if ignore_errors else nullcontext():
            if found.is_dir() and not found.is_symlink():
                shutil.rmtree(found, ignore_errors=ignore_errors)
            else:
                found.unlink(missing_ok=True)


@contextmanager
def exclusive(path: Path, what: str, *, wait: bool = False, waits: Callable[[str], None] | None = None) -> Iterator[None]:
    """Hold `path` for the length of the block.

    Args:
        waits: called with the holder's name if it has to wait.

    Raises:
        InUseError: another process holds it and `wait` is False; the message names the process.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            busy = _in_use(descriptor, path, what)
            if not wait:
                raise busy from None
            if waits:
                waits(busy.what)
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        _sign(descriptor)
        yield
    finally:
        os.close(descriptor)


@contextmanager
def together(path: Path, what: str) -> Iterator[None]:
    """Hold `path` with others that hold it together, and against `exclusive`, for the length of the block.

    Raises:
        InUseError: a process holds it alone.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            raise _in_use(descriptor, path, what) from None
        _sign(descriptor)
        yield
    finally:
        os.close(descriptor)


def is_held(path: Path) -> bool:
    """Whether a process holds `path`, a file or a directory. For a moment nobody else can, so ask where nobody else may want to."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    else:
        return False
    finally:
        os.close(descriptor)


def _in_use(descriptor: int, path: Path, what: str) -> InUseError:
    busy = f"{what} is in use by process {os.pread(descriptor, 32, 0).decode() or 'unknown'}"
    return InUseError(busy, str(path), "wait until it ends, then try again")


def _sign(descriptor: int) -> None:
    """Write who holds the file."""
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, str(os.getpid()).encode(), 0)
