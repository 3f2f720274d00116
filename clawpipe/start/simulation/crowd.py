"""Run simulated users in parallel threads: many at a time, or one while a night trains."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from clawpipe.play.environments.base import TaskItem
from clawpipe.start.simulation.conversation import FailedRequestError, Talk


class Talker(Protocol):
    """Holds conversations; `clawpipe.start.simulation.conversation.Harness` is the real one."""

    def talk(self, goal: TaskItem, hour: int, session: str, user: int, draw: random.Random) -> Talk: ...

    def close(self) -> None: ...


@dataclass
class Crowd:
    """Users with one goal after the other, used as a context manager.

    Args:
        users: how many there are.
        talker: makes a user's harness.
        goals: what they want, each once, with its number.
        heard: called with each conversation that ended, one at a time.
        hour: the hour in which conversations begin.
        seed: decides moods and words, with a goal's number.
        pause: seconds between two conversations of a user who talks alone.

    Attributes:
        failures: what requests failed of.
    """

    users: int
    talker: Callable[[], Talker]
    goals: Iterator[tuple[int, TaskItem]]
    heard: Callable[[Talk], None]
    hour: int = 0
    seed: int = 0
    pause: float = 5.0
    failures: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._changed, self._talking, self._busy, self._over = threading.Condition(), 0, 0, False
        self._threads = [threading.Thread(target=self._live, args=(number,), daemon=True) for number in range(self.users)]

    def __enter__(self) -> Crowd:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop the users. Unfinished conversations and their failures are not counted."""
        with self._changed:
            self._over = True
            self._changed.notify_all()

    def let(self, talking: int) -> None:
        """Set the number of users who talk; the others stop when their conversation has ended."""
        with self._changed:
            self._talking = talking
            self._changed.notify_all()

    def wait(self, done: Callable[[], bool], seconds: float | None = None) -> bool:
        """Wait until `done`, which is asked after each conversation; return whether it was before `seconds` have passed."""
        with self._changed:
            return self._changed.wait_for(lambda: done() or not any(one.is_alive() for one in self._threads), seconds) and done()

    def settle(self) -> None:
        """Wait until no more users talk than `let` allows."""
        with self._changed:
            self._changed.wait_for(lambda: self._busy <= self._talking)

    def _live(self, number: int) -> None:
        talker = self.talker()
        try:
            while begun := self._next(number):
                self._talk(talker, number, *begun)
        finally:
            talker.close()
            with self._changed:
                self._changed.notify_all()

    def _next(self, number: int) -> tuple[int, int, TaskItem] | None:
        """Wait for this user's turn, and return the hour and the next goal with its number; None: it is over."""
        with self._changed:
            if self._talking <= 1:
                self._changed.wait_for(lambda: self._over or self._talking > 1, self.pause)
            self._changed.wait_for(lambda: self._over or number < self._talking)
            goal = None if self._over else next(self.goals, None)
            self._busy += goal is not None
            return goal and (self.hour, *goal)

    def _talk(self, talker: Talker, number: int, hour: int, place: int, goal: TaskItem) -> None:
        draw = random.Random(f"{self.seed}/{place}")
        try:
            talk = talker.talk(goal, hour, f"live-{self.seed}-{place}", number, draw)
        except FailedRequestError as error:
            self._tell(partial(self.failures.append, str(error)))
        else:
            self._tell(partial(self.heard, talk))

    def _tell(self, what: Callable[[], object]) -> None:
        with self._changed:
            self._busy -= 1
            if not self._over:
                what()
            self._changed.notify_all()
