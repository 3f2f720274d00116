"""End a running night early, within seconds: on Ctrl-C, or with the server that it started."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING

from clawpipe.cli.output import tell
from clawpipe.errors import BusyError, ClawpipeError, StoppedError

if TYPE_CHECKING:
    from clawpipe.core.services.service import Service

_GRACE_SECONDS = 1.5  # for an orderly end; then the process exits, and guards end its children
_LOOK_SECONDS = 0.5


class Ending:
    """Ends the process, and holds the reason.

    Args:
        kept: returns a sentence about what is not lost.
        as_json: whether to print the reason as JSON.
    """

    def __init__(self, kept: Callable[[], str], as_json: bool) -> None:
        self.why: ClawpipeError | None = None
        self.over = threading.Event()
        self._kept, self._as_json = kept, as_json
        self._beginning, self._ending = threading.Lock(), threading.Lock()

    def begin(self, why: ClawpipeError) -> None:
        """Begin to end: open contexts get a short time to close."""
        if not self.over.is_set() and self._beginning.acquire(blocking=False):
            self.why = why
            timer = threading.Timer(_GRACE_SECONDS, self.end, [why])
            timer.daemon = True
            timer.start()

    def end(self, why: ClawpipeError) -> None:
        """Print the reason and exit at once, because the interpreter's own clean-up takes seconds on a busy machine."""
        with self._ending:
            try:
                why.fix = self._kept()
                tell(why, self._as_json)
                sys.stdout.flush()
            finally:
                os._exit(why.exit_code)

    def follow(self, server: Service) -> None:
        """End when `server` ends, since the night cannot go on without it."""
        threading.Thread(target=self._watch, args=(server,), daemon=True).start()

    def _watch(self, server: Service) -> None:
        while not self.over.wait(_LOOK_SECONDS):
            if server.ended() is not None:
                what = f"the {server.name} that the night started has ended (code {server.ended()})"
                self.begin(BusyError(what, str(server.log)))
                os.kill(os.getpid(), signal.SIGINT)
                return


@contextmanager
def end_early(kept: Callable[[], str], as_json: bool) -> Iterator[Ending]:
    """End the process within seconds of Ctrl-C (130), or of the end of a server that it follows (75), however busy it is.

    It prints the reason and what is kept. Contexts opened inside the block may close; outer ones do not.

    Args:
        kept: returns a sentence about what is not lost.
        as_json: whether to print the reason as JSON.
    """
    ending = Ending(kept, as_json)

    def interrupted(number: int, frame: FrameType | None) -> None:
        ending.begin(StoppedError("interrupted"))
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, interrupted)
    try:
        with _on_interrupt(lambda: ending.begin(StoppedError("interrupted"))):
            yield ending
    except BaseException:
        if ending.why is not None:
            ending.end(ending.why)
        raise
    finally:
        ending.over.set()
        signal.signal(signal.SIGINT, before)


@contextmanager
def _on_interrupt(interrupted: Callable[[], None]) -> Iterator[None]:
    """Call `interrupted` from a thread at once on Ctrl-C: only the main thread runs handlers, and it may be busy."""
    read, write = os.pipe()
    os.set_blocking(write, False)
    before = signal.set_wakeup_fd(write, warn_on_full_buffer=False)

    def listen() -> None:
        while number := os.read(read, 1):  # the kernel's handler writes each signal's number
            if number[0] == signal.SIGINT:
                interrupted()
        os.close(read)

    threading.Thread(target=listen, daemon=True).start()
    try:
        yield
    finally:
        signal.set_wakeup_fd(before)
        os.close(write)
