"""Child processes that cannot outlive their parent, and the memory and the end of this one.

A child runs under a small guard process in a session of its own. The guard holds the read end of a pipe whose write end only
the parent holds; when the parent ends for any reason, the pipe closes and the guard ends the child's whole group.

A guard that is killed cannot end anything. So the kernel kills the child together with it, and a second process, which waits
for the guard's end in the same way, kills the child's children.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import getpass
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import IO, Any, NoReturn

GRACE_SECONDS = 10.0
_PR_SET_PDEATHSIG = 1  # linux/prctl.h
_SPINS = "10000"  # looks for the others before a thread sleeps
_ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def spawn(
    command: Sequence[str],
    *,
    env: Mapping[str, str] | None = None,
    stdin: int | None = subprocess.DEVNULL,
    stdout: int | IO[Any] | None = None,
    stderr: int | IO[Any] | None = None,
) -> subprocess.Popen[bytes]:
    """Start `command` under a guard. `.wait()` returns its exit code (negative for a signal, as in subprocess)."""
    read, write = os.pipe()
    os.set_inheritable(read, True)
    guard = subprocess.Popen(
        [sys.executable, "-S", __file__, str(read), *command],
        env=dict(env) if env is not None else None,
        stdin=stdin,
        stdout=stdout,
        stderr=stderr,
        pass_fds=(read,),
        start_new_session=True,
    )
    os.close(read)
    guard.lifeline = write  # type: ignore[attr-defined]  # kept as long as the handle
    return guard


def finish(process: subprocess.Popen[bytes], seconds: float) -> int:
    """Wait at most `seconds` for a child that is about to end, then `stop` it. Returns its exit code."""
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(seconds)
    return stop(process)


def stop(process: subprocess.Popen[bytes]) -> int:
    """End a spawned child and all its children: SIGTERM, a grace period, SIGKILL. Returns its exit code.

    Safe to call twice, and on a child that has ended; it closes this process's ends of the child's pipes.
    """
    lifeline, process.lifeline = process.lifeline, None  # type: ignore[attr-defined]
    if lifeline is not None:
        os.close(lifeline)
    code = process.wait()
    for pipe in (process.stdin, process.stdout, process.stderr):
        if pipe is not None:
            with contextlib.suppress(BrokenPipeError):  # unwritten data have no reader any more
                pipe.close()
    return code


def _guard(read: int, command: list[str]) -> int:
    child = subprocess.Popen(command, process_group=0, preexec_fn=_die_with(os.getpid()))
    still_here = _start_second_guard(child.pid)
    for number in _ENDING:  # when the guard is ended, the child must end, too
        signal.signal(number, lambda *_: threading.Thread(target=_end, args=(child,), daemon=True).start())
    threading.Thread(target=_end_with_parent, args=(read, child), daemon=True).start()
    code = child.wait()
    _signal_group(child.pid, signal.SIGKILL)  # remaining grandchildren
    with contextlib.suppress(BrokenPipeError):
        os.write(still_here, b".")
    return code


def _die_with(parent: int) -> Callable[[], None]:
    """Return a function for a new process that makes it die with `parent`. The parent's main thread must call and start it."""
    prctl = getattr(ctypes.CDLL(None), "prctl", None)  # exists on Linux only

    def ask() -> None:
        if prctl is not None:
            prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # the parent was killed before prctl
            os.kill(os.getpid(), signal.SIGKILL)

    return ask


def _start_second_guard(group: int) -> int:
    """Start a process that kills `group` unless this one writes to the returned pipe end before it ends."""
    read, write = os.pipe()
    if os.fork():
        os.close(read)
        return write
    os.close(write)
    os.setpgid(0, 0)  # so that a kill of the guard's group spares this process
    if not os.read(read, 1):
        _signal_group(group, signal.SIGKILL)
    os._exit(0)


def _end_with_parent(read: int, child: subprocess.Popen[bytes]) -> None:
    os.read(read, 1)  # returns when every write end is closed
    _end(child)


def _end(child: subprocess.Popen[bytes]) -> None:
    _signal_group(child.pid, signal.SIGTERM)
    try:
        child.wait(GRACE_SECONDS)
    except subprocess.TimeoutExpired:
        _signal_group(child.pid, signal.SIGKILL)


def _signal_group(group: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, number)


def user_name() -> str:
    """Return the name of the user that this process runs as; the number of one without a name, as containers may have it."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # OSError from Python 3.13 on
        return f"user {os.getuid()}"


def let_waiting_threads_sleep() -> None:
    """Let threads that compute together sleep when one waits long for another, unless the environment says how they wait.

    GNU's OpenMP would spin for milliseconds; where other programs use the cores as well, that takes the time of the very thread
    that is waited for. To sleep at once would slow the short steps of sampling. `benchmarks/busy_cores.py` measures it. To be
    called before torch is imported.
    """
    if not {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT"} & os.environ.keys():
        os.environ["GOMP_SPINCOUNT"] = _SPINS


def trim_heap() -> None:
    """Return freed memory to the system; malloc would keep it for later. Costs milliseconds."""
    if sys.platform == "linux" and hasattr(libc := ctypes.CDLL(None), "malloc_trim"):
        libc.malloc_trim(0)


def quick_exit(code: int) -> NoReturn:
    """End this process as `sys.exit` does, but leave the memory of modules to the system: taking torch apart costs 1.5 CPU-seconds.

    Threads are waited for, functions of `atexit` run, and output is flushed.
    """
    threading._shutdown()  # type: ignore[attr-defined]  # what the interpreter itself calls first
    atexit._run_exitfuncs()  # pyright: ignore[reportPrivateUsage]  # what it calls next
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):  # its reader is gone; it is closed; there is none
            stream.flush()
    os._exit(code)


if __name__ == "__main__":
    status = _guard(int(sys.argv[1]), sys.argv[2:])
    if status < 0:  # end by the same signal, so that the parent reads the same code
        if -status in _ENDING:
            signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
        signal.pause()
    sys.exit(status)
