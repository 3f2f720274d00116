"""Users in threads: who talks when, and what is counted."""

import threading
from collections import Counter

import pytest

from clawpipe.play.environments.shop import ShopEnvironment
from clawpipe.start.simulation.conversation import FailedRequestError, Talk
from clawpipe.start.simulation.crowd import Crowd

GOALS = ShopEnvironment().items("train", 40, 0)


def talk(session: str, hour: int = 0, version: str = "base", success: bool = True) -> Talk:
    figures = {"success": success, "value": float(success), "reason": "right", "mood": "praise", "words": "Thanks!"}
    return Talk(hour=hour, session=session, item=session, version=version, turns=3, seconds=0.1, **figures)


class Fake:
    """Ends a conversation at once, or when `gate` is open; fails where a goal's place is in `fails`."""

    def __init__(self, log: list[tuple[str, str]], gate: threading.Event | None = None, fails: tuple[str, ...] = ()) -> None:
        self.log, self.gate, self.fails = log, gate, fails

    def talk(self, goal, hour, session, user, draw):
        assert self.gate is None or self.gate.wait(60)
        self.log.append((user, session))
        if session in self.fails:
            raise FailedRequestError("HTTP 503")
        return talk(session, hour)

    def close(self):
        self.log.append(("closed", ""))


def test_each_goal_is_talked_about_once():
    log, heard = [], []
    with Crowd(4, lambda: Fake(log), iter(list(enumerate(GOALS))), heard.append, pause=0) as crowd:
        crowd.let(4)
        assert crowd.wait(lambda: len(heard) == len(GOALS))
    assert sorted(one.session for one in heard) == sorted(f"live-0-{place}" for place in range(len(GOALS)))
    assert set(Counter(session for user, session in log if user != "closed").values()) == {1}


def test_a_failed_request_is_counted_and_the_user_goes_on():
    log, heard = [], []
    with Crowd(1, lambda: Fake(log, fails=("live-7-1",)), iter(list(enumerate(GOALS[:3]))), heard.append, seed=7, pause=0) as crowd:
        crowd.let(1)
        assert not crowd.wait(lambda: len(heard) == 3)  # the goals are used up
    assert [one.session for one in heard] == ["live-7-0", "live-7-2"]
    assert crowd.failures == ["HTTP 503"]


def test_users_fall_silent_when_their_conversation_has_ended():
    log, heard, gate = [], [], threading.Event()
    with Crowd(3, lambda: Fake(log, gate), iter(list(enumerate(GOALS))), heard.append, pause=0) as crowd:
        crowd.let(3)
        crowd.let(0)
        gate.set()
        crowd.settle()
        assert len(heard) <= 3
        assert not crowd.wait(lambda: len(heard) > 3, 0.2)


def test_an_hour_is_that_in_which_a_conversation_begins():
    heard, gate = [], threading.Event()
    with Crowd(1, lambda: Fake([], gate), iter(list(enumerate(GOALS))), heard.append, hour=0, pause=0) as crowd:
        crowd.let(1)
        while not crowd._busy:
            crowd.wait(lambda: True)
        crowd.hour = 1
        gate.set()
        assert crowd.wait(lambda: len(heard) >= 2)
    assert [one.hour for one in heard[:2]] == [0, 1]


def test_what_ends_after_the_crowd_has_left_is_not_counted():
    heard, gate, log = [], threading.Event(), []
    with Crowd(1, lambda: Fake(log, gate, fails=("live-0-0",)), iter(list(enumerate(GOALS))), heard.append, pause=0) as crowd:
        crowd.let(1)
        while not crowd._busy:
            crowd.wait(lambda: True)
    gate.set()
    crowd._threads[0].join(60)
    assert (heard, crowd.failures, log[-1]) == ([], [], ("closed", ""))


@pytest.mark.parametrize("users", [1, 5])
def test_every_user_is_let_go(users):
    log = []
    with Crowd(users, lambda: Fake(log), iter([]), lambda _: None, pause=0) as crowd:
        crowd.let(users)
        crowd.wait(lambda: False)
    assert log == [("closed", "")] * users
