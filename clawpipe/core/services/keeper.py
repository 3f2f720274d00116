"""Keep a service running: start it again when it ends by itself, and give up where that does not help."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable

from clawpipe.core.services.service import Service
from clawpipe.core.system import processes

MOST, WITHIN_SECONDS = 3, 300.0  # so many ends in so short a time are no accident


class Keeper:
    """Watches a service for the length of a block.

    Args:
        service: that runs.
        start: starts it anew, with a log and an address of its own that do not change.
        tell: is told, in words, what happened.
        give_up: called when the service has ended `MOST` times within `WITHIN_SECONDS`.
    """

    def __init__(
        self, service: Service, start: Callable[[], Service], tell: Callable[[str], None], give_up: Callable[[], None]
    ) -> None:
        self.service, self._start, self._tell, self._give_up = service, start, tell, give_up
        self.gave_up = False
        self._over, self._lock = threading.Event(), threading.Lock()
        self._thread = threading.Thread(target=self._keep, name=f"keeper of {service.name}", daemon=True)

    def __enter__(self) -> Keeper:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """End the service."""
        with self._lock:
            self._over.set()
        processes.stop(self.service.process)
        self._thread.join()

    def _keep(self) -> None:
        ends: deque[float] = deque(maxlen=MOST)
        while True:
            code = self.service.process.wait()
            ends.append(time.monotonic())
            with self._lock:
                if self._over.is_set():
                    return
                if len(ends) == MOST and ends[-1] - ends[0] < WITHIN_SECONDS:
                    break
                self._tell(f"{self.service.name} {ending(code)}; it is started again, and nobody is answered until it has loaded")
                self.service = self._start()
        self.gave_up = True
        self._tell(f"{self.service.name} {ending(code)}, {MOST} times within {WITHIN_SECONDS / 60:.0f} minutes: it is given up")
        self._give_up()


def ending(code: int) -> str:
    """Return how a process ended, in words."""
    if code == -9:
        return "was killed (signal 9), by the system if memory ran out"
    return f"was ended by signal {-code}" if code < 0 else f"ended with code {code}"
