"""Segments: append-only files of records. A record that `append` returned for has reached the disk.

A gateway writes to a segment of its own, which it holds locked. A segment that nobody holds and that has no `End` was left by a
killed gateway: what follows its last whole record was never acknowledged, and `recover` cuts it off.
"""

from __future__ import annotations

import calendar
import errno
import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from clawpipe.core.store.files import fsync
from clawpipe.core.store.home import Home
from clawpipe.data.capture.records import DamagedError, End, Record, line_of, read_line

SUFFIX = ".jsonl"
RESERVE = 16 << 20  # bytes that must be free before a request is let to the engine
_TAIL = 4096  # bytes that hold an `End`


def segments_dir(home: Home) -> Path:
    return home.root / "captured"


def segments(directory: Path) -> list[Path]:
    """Return the segments, the oldest first."""
    return sorted(directory.glob(f"*{SUFFIX}"))


class Segment:
    """A segment that this process writes to."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.path = directory / _new_name(directory)
        self._file = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL, 0o600)
        self.size = 0
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            fsync(directory)
        except OSError:
            os.close(self._file)
            raise

    def append(self, lines: bytes) -> None:
        """Write lines, and return when they are on the disk. What cannot be written whole is taken back.

        Raises:
            OSError: the disk is full, or failed. After a failed sync the segment must not be written to any more, because the
                kernel may have dropped what it did not write.
        """
        try:
            _write(self._file, lines)
            os.fdatasync(self._file)
        except OSError:
            with suppress(OSError):
                os.ftruncate(self._file, self.size)
            raise
        self.size += len(lines)

    def close(self) -> None:
        """Mark the end, and let the segment go."""
        with suppress(OSError):  # a segment without it is checked when the next gateway starts
            self.append(line_of(End(time.time())))
        self.abandon()

    def abandon(self) -> None:
        """Let the segment go without a mark."""
        os.close(self._file)


def _new_name(directory: Path) -> str:
    """Return a name by the time that sorts after those of this process's other segments, also if the clock was set back."""
    own = f"-{os.getpid()}{SUFFIX}"
    last = max((path.name for path in directory.glob(f"*{own}")), default="")
    now = time.time_ns()
    while (name := f"{time.strftime('%Y%m%dT%H%M%S', time.gmtime(now // 10**9))}-{now % 10**9:09d}{own}") <= last:
        now = _time_of(last) + 1
    return name


def _time_of(name: str) -> int:
    """Return the time in a segment's name, in nanoseconds since 1970."""
    stamp, nanoseconds, _ = name.split("-")
    return calendar.timegm(time.strptime(stamp, "%Y%m%dT%H%M%S")) * 10**9 + int(nanoseconds)


def check_space(directory: Path, thoroughly: bool = False) -> None:
    """Check that `RESERVE` bytes are free; thoroughly: that they can be had, which a limit or a quota may deny.

    Raises:
        OSError: they are not.
    """
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    disk = os.statvfs(directory)
    if disk.f_bavail * disk.f_frsize < RESERVE:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    if thoroughly:
        probe = os.open(directory, os.O_TMPFILE | os.O_WRONLY, 0o600)
        try:
            os.posix_fallocate(probe, 0, RESERVE)
        finally:
            os.close(probe)


class Located(NamedTuple):
    """A record and the number of its line, from 1."""

    record: Record
    line: int


def read_segment(path: Path) -> Iterator[Located]:
    """Yield the whole records of a segment, also while it is written to. A damaged line is passed over."""
    with path.open("rb") as stream:
        for number, line in enumerate(stream, 1):
            if line.endswith(b"\n"):
                with suppress(DamagedError):
                    yield Located(read_line(line[:-1]), number)


def recover(directory: Path) -> dict[Path, int]:
    """Cut off the torn tails of segments that killed gateways left, and mark their ends. Returns the bytes cut from each."""
    cut = {path: _recover(path) for path in segments(directory)}
    return {path: count for path, count in cut.items() if count}


def try_lock(descriptor: int) -> bool:
    """Lock a segment, unless a gateway writes to it."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _recover(path: Path) -> int:
    descriptor = os.open(path, os.O_RDWR | os.O_APPEND)
    try:
        if not try_lock(descriptor) or _has_end(descriptor):
            return 0
        whole, size = _whole_length(path), os.fstat(descriptor).st_size
        os.ftruncate(descriptor, whole)
        _write(descriptor, line_of(End(time.time())))
        os.fdatasync(descriptor)
        return size - whole
    finally:
        os.close(descriptor)


def _has_end(descriptor: int) -> bool:
    size = os.fstat(descriptor).st_size
    lines = os.pread(descriptor, _TAIL, max(0, size - _TAIL)).splitlines(keepends=True)
    try:
        return bool(lines) and lines[-1].endswith(b"\n") and isinstance(read_line(lines[-1][:-1]), End)
    except DamagedError:
        return False


def _whole_length(path: Path) -> int:
    """Return the length of the lines up to the last whole record. A damaged line before it stays, as evidence."""
    whole = place = 0
    with path.open("rb") as stream:
        for line in stream:
            place += len(line)
            with suppress(DamagedError):
                read_line(line.removesuffix(b"\n"))
                whole = place if line.endswith(b"\n") else whole
    return whole


def _write(descriptor: int, data: bytes) -> None:
    left = memoryview(data)
    while left:
        left = left[os.write(descriptor, left) :]
