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

import typer

from clawpipe.cli.output import tell
from clawpipe.errors import BusyError, ClawpipeError, StoppedError

if TYPE_CHECKING:
    from clawpipe.services.service import Service

_GRACE_SECONDS = 1.5  # for what ends in order; then the process ends, and its children with it: their guards see to that
_LOOK_SECONDS = 0.5


class _Ending:
    """Why the process ends, once it does."""

    def __init__(self, as_json: bool) -> None:
        self.why: ClawpipeError | None = None
        self._as_json = as_json
        self._told = threading.Lock()

    def begin(self, why: ClawpipeError) -> None:
        """Give what is open some time to close, and no more."""
        self.why = why
        timer = threading.Timer(_GRACE_SECONDS, lambda: os._exit(self.tell(why)))
        timer.daemon = True
        timer.start()

    def tell(self, why: ClawpipeError) -> int:
        """Say it, once. Returns the exit code."""
        if self._told.acquire(blocking=False):
            tell(why, self._as_json)
            sys.stdout.flush()
        return why.exit_code


@contextmanager
def ends_soon(service: Service | None, kept: Callable[[], str], as_json: bool) -> Iterator[None]:
    """A block that ends the process within seconds of Ctrl-C (130) and of the end of `service` (75), however busy, and says why.

    Args:
        service: the server without which there is no point in going on; None: somebody else's.
        kept: says what is not lost.

    Raises:
        typer.Exit: it was said, and what is open may close.
    """
    ending, over = _Ending(as_json), threading.Event()

    def interrupted(number: int, frame: FrameType | None) -> None:
        if ending.why is None:
            ending.begin(StoppedError("interrupted", fix=kept()))
        raise KeyboardInterrupt

    def watch(server: Service) -> None:
        while not over.wait(_LOOK_SECONDS):
            if server.ended() is not None:
                what = f"the {server.name} that the night started has ended (code {server.ended()})"
                ending.begin(BusyError(what, str(server.log), kept()))
                os.kill(os.getpid(), signal.SIGINT)
                return

    before = signal.signal(signal.SIGINT, interrupted)
    if service is not None:
        threading.Thread(target=watch, args=(service,), daemon=True).start()
    try:
        yield
    except BaseException:
        if ending.why is not None:
            raise typer.Exit(ending.tell(ending.why)) from None
        raise
    finally:
        over.set()
        signal.signal(signal.SIGINT, before)
