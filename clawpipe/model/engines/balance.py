"""Which of a model's servers gets the next request: of those that are well and have room, the one that would answer it first.

A server's speed is what it has answered while it was busy; what it showed long ago counts less and less. So servers get requests in
proportion to their speeds. One that fails is left out for a while, twice as long each time; one that refuses for being full gets no
more requests at a time than it took, and a further one whenever it has answered as many.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

_log = logging.getLogger(__name__)

_LONGEST_ABSENCE = 60.0  # seconds for which a server is left out at most; the first time it is one
_HALF_LIFE = 30.0  # seconds without a request after which a server's speed counts half
_KEPT = 1 - 1 / 64  # of what a server has answered, at each further answer


@dataclass
class Replica:
    """A server, as its clients see it.

    Attributes:
        requests: under way.
        room: the most requests at a time that it is given.
        full_at: the room from which on it grows slowly, since the server was full there.
        away_until: when it is asked again, after it has failed.
        failures: in a row.
        unproven: it has been away, or was never there: see `Balance.proof`.
        proving: somebody is finding out whether it may come back.
        done, busy: what it has answered, and in how many seconds with requests under way.
    """

    url: str
    requests: int = 0
    room: float = math.inf
    full_at: float = math.inf
    away_until: float = 0.0
    failures: int = 0
    failed_at: float = -math.inf
    unproven: bool = False
    proving: bool = False
    done: float = 0.0
    busy: float = 0.0
    since: float = 0.0

    def seconds_to_answer(self, now: float) -> float:
        """Return in how many seconds it would have answered what is under way and one more, at the speed it has shown."""
        self._count_time(now)
        return (self.requests + 1) * self.busy / (self.done + 1)

    def begin(self, now: float) -> None:
        self._count_time(now)
        self.requests += 1

    def end(self, now: float) -> None:
        self._count_time(now)
        self.requests -= 1

    def answer(self) -> None:
        """Count an answer; it is given more requests at a time, too."""
        self.done, self.busy = self.done * _KEPT + 1, self.busy * _KEPT
        self.room += 1 if self.room < self.full_at else 1 / self.room
        self.failures = 0

    def _count_time(self, now: float) -> None:
        if self.requests:
            self.busy += now - self.since
        else:
            faded = 0.5 ** ((now - self.since) / _HALF_LIFE)
            self.busy, self.done = self.busy * faded, self.done * faded
        self.since = now


class Balance:
    """The servers of one model. Threads may ask at once.

    Attributes:
        proof: raises where a server that has failed must not come back yet; None: whatever answers may.
        answered: requests so far, by all servers.
    """

    def __init__(self, urls: Sequence[str]) -> None:
        self._changed = threading.Condition()
        self.replicas = [Replica(url, since=time.monotonic()) for url in urls]
        self.proof: Callable[[str], None] | None = None
        self.answered = 0

    @contextmanager
    def place(self) -> Iterator[Replica | None]:
        """Yield the server for a request, once one has room; None while all of them are left out and have to be proven first."""
        with self._changed:
            replica = self._chosen()
            proving = replica is not None and replica.unproven
            if replica:
                replica.begin(time.monotonic())
                replica.proving = proving
        if replica is None:
            yield None
            return
        try:
            yield replica
        finally:
            with self._changed:
                replica.end(time.monotonic())
                replica.proving = replica.proving and not proving
                self._changed.notify_all()

    def at(self, url: str) -> Replica:
        """Return the server at a URL."""
        return next(replica for replica in self.replicas if replica.url == url.rstrip("/"))

    def here(self) -> list[str]:
        """Return the URLs of the servers that are not left out."""
        return [replica.url for replica in self.replicas if not replica.unproven]

    def has_answered(self, replica: Replica) -> None:
        with self._changed:
            self.answered += 1
            replica.answer()

    def is_back(self, replica: Replica) -> None:
        """Let a server that was proven have requests again, slowly at first."""
        with self._changed:
            if replica.failures:
                _log.warning("%s is back", replica.url)
            replica.unproven = False
            replica.room, replica.away_until = 1.0, 0.0
            self._changed.notify_all()

    def has_failed(self, replica: Replica, why: str, begun: float, proven: bool = False) -> None:
        """Leave a server out for a while.

        Args:
            begun: when the request began that failed: of several that failed together, the first one counts.
            proven: it is there and is the same as before; else it may have been started anew, and comes back by `proof`.
        """
        with self._changed:
            if begun >= replica.failed_at:
                replica.failed_at = time.monotonic()
                seconds = min(2.0**replica.failures, _LONGEST_ABSENCE)
                replica.failures += 1
                replica.away_until = replica.failed_at + seconds
                _log.warning("%s is left out for %.0f s: %s", replica.url, seconds, why)
            replica.unproven = replica.unproven or (not proven and self.proof is not None)
            self._changed.notify_all()

    def is_full(self, replica: Replica, seconds: float) -> None:
        """Give a server no more requests at a time than it took, and the next one in `seconds`."""
        with self._changed:
            replica.room = replica.full_at = max(min(replica.room, replica.requests - 1), 1)
            replica.away_until = max(replica.away_until, time.monotonic() + seconds)

    def _chosen(self) -> Replica | None:
        while True:
            now = time.monotonic()
            due = [one for one in self.replicas if one.away_until <= now and not one.proving]
            if unproven := [one for one in due if one.unproven]:
                return unproven[0]
            known = [one for one in self.replicas if not one.unproven]
            if not known:
                return None
            among = [one for one in due if one in known] or known
            if free := [one for one in among if one.requests < one.room]:
                return min(free, key=lambda one: (max(one.away_until, now), one.seconds_to_answer(now), one.requests))
            self._changed.wait(1.0)
