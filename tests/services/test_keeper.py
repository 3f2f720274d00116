"""A service that is killed is started again, and given up where that does not help."""

import os
import signal
import sys
import threading

import pytest

from clawpipe.core.services.keeper import Keeper, ending
from clawpipe.core.services.service import started

SLEEPING = [sys.executable, "-S", "-c", "import time; print('up', flush=True); time.sleep(600)"]
FAILING = [sys.executable, "-S", "-c", "raise SystemExit(3)"]


class Started:
    """Starts a command, and lets a test wait for its number of starts."""

    def __init__(self, command, log):
        self.command, self.log, self.count, self.changed = command, log, 0, threading.Condition()

    def __call__(self):
        service = started("the engine", self.command, self.log, {})
        with self.changed:
            self.count += 1
            self.changed.notify_all()
        return service

    def wait_for(self, count):
        with self.changed:
            assert self.changed.wait_for(lambda: self.count >= count, 60)


def test_a_killed_service_is_started_again_in_words(tmp_path):
    start, told = Started(SLEEPING, tmp_path / "log"), []
    with Keeper(start(), start, told.append, lambda: pytest.fail("it was killed once")) as keeper:
        first = keeper.service.process
        os.kill(first.pid, signal.SIGKILL)
        start.wait_for(2)
    assert keeper.service.process is not first
    assert keeper.service.process.poll() is not None  # nothing is left
    assert told == [
        "the engine was killed (signal 9), by the system if memory ran out; it is started again, and nobody is answered until it "
        "has loaded"
    ]
    assert not keeper.gave_up


def test_a_service_that_ends_again_and_again_is_given_up(tmp_path):
    start, told, over = Started(FAILING, tmp_path / "log"), [], threading.Event()
    with Keeper(start(), start, told.append, over.set) as keeper:
        assert over.wait(60)
    assert (start.count, keeper.gave_up) == (3, True)
    assert told[-1] == "the engine ended with code 3, 3 times within 5 minutes: it is given up"


def test_an_end_that_was_asked_for_is_no_accident(tmp_path):
    start, told = Started(SLEEPING, tmp_path / "log"), []
    with Keeper(start(), start, told.append, lambda: None):
        pass
    assert (start.count, told) == (1, [])


def test_how_a_process_ended_is_said_in_words():
    assert ending(-15) == "was ended by signal 15"
    assert ending(2) == "ended with code 2"
