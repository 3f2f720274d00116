"""Stop a run with all its children, within seconds, so that the same command goes on where it was."""

from __future__ import annotations

import signal
import time
from contextlib import suppress

import psutil

from clawpipe.core.store.home import Home
from clawpipe.errors import ConfigError, NotFoundError
from clawpipe.record.runs.listing import find_run
from clawpipe.record.runs.record import ProcessId, Run, ask_to_stop, read_record
from clawpipe.record.runs.waiting import cancel, state_in_prefect

GRACE_SECONDS = 5.0  # for an orderly end, then SIGKILL
_LAST_SECONDS = 5.0  # for the kernel
_POLL_SECONDS = 0.1
_MESSAGE = "stopped by `clawpipe runs stop`"


def stop_run(home: Home, name: str, grace: float = GRACE_SECONDS) -> Run:
    """Stop a run: SIGINT, and SIGKILL after `grace` seconds for it and for every child that is still there.

    A run that waits in Prefect's queue is cancelled there. Stopping a run that has ended changes nothing.

    Returns:
        the run as it is afterwards.

    Raises:
        NotFoundError: there is no such run.
        ConfigError: it runs on another machine, or Prefect did not cancel one that waits.
    """
    run = find_run(home, name)
    if run.state == "pending":
        return _cancelled(home, run)
    if run.has_ended:
        return run
    if run.process is None or not run.process.is_here:
        where = run.process.host if run.process else "another machine"
        raise ConfigError(f"the run is on {where}", run.id, "stop it there, with the same command")
    ask_to_stop(home, run)
    _end(run.process, grace)
    run = read_record(home, run.id)
    if run.flow_run and state_in_prefect(home, run.flow_run) not in (None, "Cancelled", "Completed"):
        cancel(home, run.flow_run, _MESSAGE)
    return run


def _cancelled(home: Home, run: Run) -> Run:
    if not run.flow_run or not cancel(home, run.flow_run, _MESSAGE):
        raise NotFoundError("Prefect does not take the cancellation", run.id, "`clawpipe doctor` checks the server")
    return run.model_copy(update={"state": "stopped", "why": _MESSAGE})


def _end(identity: ProcessId, grace: float) -> None:
    """End a process and all that it has started. What is left after `grace` seconds is killed."""
    process, known = identity.find(), set[psutil.Process]()
    if process is None:
        return
    known |= _family(process)
    with suppress(psutil.NoSuchProcess):
        process.send_signal(signal.SIGINT)
    if not _gone_within(grace, known):
        for left in sorted(known, key=lambda one: one != process):  # the run first, or it could end in peace without its children
            with suppress(psutil.NoSuchProcess):  # psutil compares the start time before it sends
                left.kill()
        _gone_within(_LAST_SECONDS, known)


def _gone_within(seconds: float, known: set[psutil.Process]) -> bool:
    """Wait for processes to end, and for those that they start meanwhile, which are added. Returns whether all have ended."""
    deadline = time.monotonic() + seconds
    while alive := {process for process in known if _is_alive(process)}:
        for process in alive:
            known |= _family(process)
        if time.monotonic() > deadline:
            return False
        time.sleep(_POLL_SECONDS)
    return True


def _family(process: psutil.Process) -> set[psutil.Process]:
    with suppress(psutil.NoSuchProcess):
        return {process, *process.children(recursive=True)}
    return set()


def _is_alive(process: psutil.Process) -> bool:
    with suppress(psutil.NoSuchProcess):
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False
