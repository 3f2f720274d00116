"""A circuit breaker: stop asking an endpoint that has not answered for a while."""

from __future__ import annotations

import time
from collections.abc import Callable

from clawpipe.errors import BusyError

PATIENCE = 30.0  # seconds without an answer, after which an endpoint counts as dead
BUSY_PATIENCE = 300.0  # for one that says it is overloaded, or asks to come back later


class Breaker:
    """Opens when an endpoint has answered nothing for `PATIENCE` seconds, or only that it is busy for `BUSY_PATIENCE`.

    Lost requests beside others that are answered open nothing.
    """

    def __init__(self, where: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._where, self._clock = where, clock
        self._since: float | None = None  # the start of the first try since the last answer
        self._answered: float | None = None  # the time of the last answer
        self._failures, self._why = 0, ""
        self.is_open = False

    @property
    def was_heard(self) -> bool:
        """Whether the endpoint has ever answered."""
        return self._answered is not None

    def answered(self) -> None:
        """Note that the endpoint has answered a question."""
        self._since, self._failures, self._answered = None, 0, self._clock()

    def failed(self, began: float, why: str, *, busy: bool = False) -> None:
        """Note a try that began at `began` and was not answered.

        Raises:
            BusyError: it was one too many.
        """
        began = began if self._answered is None else max(began, self._answered)  # it has answered others meanwhile
        self._since = began if self._since is None else min(self._since, began)
        self._failures, self._why = self._failures + 1, why
        enough = self._failures > 1 or not self.was_heard
        self.is_open = self.is_open or (enough and self._silence() >= (BUSY_PATIENCE if busy else PATIENCE))
        self.require()

    def require(self) -> None:
        """Raise BusyError where the endpoint is not to be asked any more."""
        if self.is_open:
            what = f"it has not answered for {self._silence():.0f} s, {self._failures} tries: {self._why}"
            raise BusyError(what, self._where, "start it, or raise `timeout`: what was answered is kept, and is not asked again")

    def _silence(self) -> float:
        return 0.0 if self._since is None else self._clock() - self._since
