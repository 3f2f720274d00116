"""Translate errors of the machine, of servers and of users' code into clawpipe's errors."""

from __future__ import annotations

import errno
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

from clawpipe.core.system.processes import user_name
from clawpipe.errors import BusyError, ClawpipeError, ConfigError

USERS_MODULE = "clawpipe_user_"  # prefix of the module name of a user's file
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_FORBIDDEN = (errno.EACCES, errno.EPERM)
_OWNERS = "give it to this user (chown), or set CLAWPIPE_HOME to a directory of this user's"
_KEPT = "then run the same command again: finished steps are kept"
_MAKE_ROOM = f"make room (`clawpipe gc` removes what nothing needs), {_KEPT}"
_ROOM = 64 * 1024  # bytes; every step needs more


def as_clawpipe_error(error: BaseException) -> ClawpipeError | None:
    """Return the clawpipe error that an exception, or one of its causes, stands for; None if there is none, as for a bug."""
    chain = list(_chain(error))
    known = next((link for link in chain if isinstance(link, ClawpipeError)), None)
    return known or next(filter(None, (_translated(link) for link in chain)), None) or _from_users_code(error)


def full_disk(place: Path) -> BusyError | None:
    """Return the error of a full disk, which libraries report in other ways; None if there is room."""
    existing = next(path for path in (place, *place.parents) if path.exists())
    if shutil.disk_usage(existing).free > _ROOM:
        return None
    return BusyError("the disk is full", str(place), _MAKE_ROOM)


def free_memory() -> int:
    """Return the bytes of memory that this process can take now: what the machine has left, or what its control group has."""
    return min(_machine_free(), _group_free())


def _machine_free() -> int:
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration):  # not Linux
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2


def _group_free(group: Path = Path("/sys/fs/cgroup")) -> int:
    """Return what a control group may still take; without a limit, more than any machine has. Cached files can be given up."""
    try:
        limit, used = (int((group / f"memory.{name}").read_text(encoding="ascii")) for name in ("max", "current"))
        kept = dict(line.split() for line in (group / "memory.stat").read_text(encoding="ascii").splitlines())
        return max(0, limit - used + int(kept.get("inactive_file", 0)))
    except (OSError, ValueError):  # there is no such group, or its limit is "max"
        return sys.maxsize


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """Yield the error and its causes, each once."""
    seen: list[BaseException] = []
    while error is not None and not any(error is link for link in seen):
        seen.append(error)
        yield error
        error = error.__cause__ or error.__context__


def _translated(error: BaseException) -> ClawpipeError | None:
    text, number = str(error), getattr(error, "errno", None)
    if number in _FULL or "database or disk is full" in text:
        return BusyError("the disk is full", _file(error), _MAKE_ROOM)
    if number == errno.EROFS or "attempt to write a readonly database" in text:
        return ConfigError("the file cannot be written", _file(error), "set CLAWPIPE_HOME, or name an output, where you may write")
    if number in _FORBIDDEN:
        return ConfigError(f"this user ({user_name()}) may not read or write the file", _file(error), _OWNERS)
    if number == errno.ENOTDIR or (number == errno.EEXIST and _is_file(error)):
        return ConfigError("a file stands where a folder is needed", _file(error), "name another place")
    if number == errno.EISDIR:
        return ConfigError("a folder stands where a file is needed", _file(error), "name a file")
    if number == errno.EMFILE:
        return BusyError("too many files are open", fix=f"raise the limit (ulimit -n), {_KEPT}")
    if isinstance(error, MemoryError):
        return BusyError("memory ran out", fix=f"free some, {_KEPT}")
    if isinstance(error, RuntimeError) and "home directory" in text:  # Path.home() and expanduser
        if os.environ.get("HOME"):
            return ConfigError("a path begins with `~` and the name of nobody on this machine", "~", "write the whole path")
        return ConfigError("HOME is not set, and this user has no home directory", "HOME", "set HOME to a directory of yours")
    return _unfit_database(error) or _lost_server(error)


def _unfit_database(error: BaseException) -> ClawpipeError | None:
    """Return the error of a database that lacks its library, or whose tables another version of MLflow wrote."""
    if isinstance(error, ModuleNotFoundError) and error.name == "psycopg2":
        return ConfigError(
            "Postgres needs a library that is not installed", "MLFLOW_TRACKING_URI", "pip install 'clawpipe[postgres]'"
        )
    if "out-of-date database schema" not in str(error):
        return None
    fix = 'back up the home, then: mlflow db upgrade "${MLFLOW_TRACKING_URI:-sqlite:///$CLAWPIPE_HOME/mlflow/mlflow.db}"'
    return ConfigError("the database of runs and models was written by another version of MLflow", fix=fix)


def _lost_server(error: BaseException) -> ClawpipeError | None:
    """Return the error of a server that does not answer, whichever client raised it."""
    httpx: Any = sys.modules.get("httpx")
    if isinstance(error, ConnectionError) or (httpx and isinstance(error, httpx.TransportError)):
        if isinstance(error, BrokenPipeError):
            return None
        what = " ".join(f"a server does not answer any more: {type(error).__name__} {error}".split())
        return BusyError(what, fix=f"check that it runs (`clawpipe doctor`), {_KEPT}")
    return None


def _from_users_code(error: BaseException) -> ClawpipeError | None:
    """Return the error of a user's environment."""
    frames = [(frame, line) for frame, line in _frames(error) if frame.f_globals.get("__name__", "").startswith(USERS_MODULE)]
    if not frames:
        return None
    frame, line = frames[-1]
    what = " ".join(f"the environment raised {type(error).__name__}: {error}".split())
    return ConfigError(what, f"{frame.f_code.co_filename}:{line}", "fix it, then run the same command again")


def _frames(error: BaseException) -> Iterator[tuple[FrameType, int]]:
    trace = error.__traceback__
    while trace is not None:
        yield trace.tb_frame, trace.tb_lineno
        trace = trace.tb_next


def _is_file(error: BaseException) -> bool:
    place = _file(error)
    return bool(place) and Path(place).is_file()


def _file(error: BaseException) -> str:
    name = getattr(error, "filename", None)
    return str(Path(name)) if isinstance(name, str | Path) else ""
