"""How a running night ends early: by Ctrl-C, or with its own server. Within seconds, whatever hangs."""

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
    from clawpipe.services.service import Service

_GRACE_SECONDS = 1.5  # for what ends in order; then the process ends, and its children with it: their guards see to that
_LOOK_SECONDS = 0.5


class Ending:
    """Why the process ends, once it does.

    Args:
        kept: says what is not lost.
        as_json: how to say it.
    """

    def __init__(self, kept: Callable[[], str], as_json: bool) -> None:
        self.why: ClawpipeError | None = None
        self.over = threading.Event()
        self._kept, self._as_json = kept, as_json
        self._begun, self._told = threading.Lock(), threading.Lock()

    def begin(self, why: ClawpipeError) -> None:
        """Give what is open some time to close, and no more."""
        if not self.over.is_set() and self._begun.acquire(blocking=False):
            self.why = why
            timer = threading.Timer(_GRACE_SECONDS, self.end, [why])
            timer.daemon = True
            timer.start()

    def end(self, why: ClawpipeError) -> None:
        """Say it and end the process here: what the interpreter would yet tidy up takes it seconds on a busy machine."""
        with self._told:
            try:
                why.fix = self._kept()
                tell(why, self._as_json)
                sys.stdout.flush()
            finally:
                os._exit(why.exit_code)

    def follow(self, server: Service) -> None:
        """End with `server`, without which there is no point in going on."""
        threading.Thread(target=self._watch, args=(server,), daemon=True).start()

    def _watch(self, server: Service) -> None:
        while not self.over.wait(_LOOK_SECONDS):
            if server.ended() is not None:
                what = f"the {server.name} that the night started has ended (code {server.ended()})"
                self.begin(BusyError(what, str(server.log)))
                os.kill(os.getpid(), signal.SIGINT)
                return


@contextmanager
def ends_soon(kept: Callable[[], str], as_json: bool) -> Iterator[Ending]:
    """A block that ends the process within seconds of Ctrl-C (130) and of the end of a server that it follows (75), however busy.

    It says why, and what is kept. What is open in the block may close; nothing outside of it does.

    Args:
        kept: says what is not lost.
        as_json: how to say it.
    """
    ending = Ending(kept, as_json)

    def interrupted(number: int, frame: FrameType | None) -> None:
        ending.begin(StoppedError("interrupted"))
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, interrupted)
    try:
        with _heard(lambda: ending.begin(StoppedError("interrupted"))):
            yield ending
    except BaseException:
        if ending.why is not None:
            ending.end(ending.why)
        raise
    finally:
        ending.over.set()
        signal.signal(signal.SIGINT, before)


@contextmanager
def _heard(interrupted: Callable[[], None]) -> Iterator[None]:
    """Call `interrupted` at once when Ctrl-C is pressed, from a thread: the main one alone runs handlers, and may be busy."""
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
