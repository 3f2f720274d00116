"""The engine's thread: answers that join and leave, its limit, cancellation, failure."""

import asyncio
import threading

import pytest

from clawpipe.errors import BusyError
from clawpipe.model.engines.base import Likelihood
from clawpipe.model.engines.rows import Row
from clawpipe.model.engines.sampling import Token, TurnSampling
from clawpipe.serve.serving.choice import Ending
from clawpipe.serve.serving.engine_thread import EngineThread
from clawpipe.serve.serving.turn import Delta


class Numbers:
    """A batch of two rows at a time that samples 0, 1, 2 ... for each."""

    at_once = 2

    def __init__(self):
        self.rows, self.waiting, self.removed = [], [], []
        self.gate = threading.Event()
        self.gate.set()
        self.broken = False

    @property
    def idle(self):
        return not self.rows and not self.waiting

    def add(self, row):
        self.waiting.append(row)

    def remove(self, row):
        self.removed.append(row)
        for rows in (self.rows, self.waiting):
            if row in rows:
                rows.remove(row)

    def step(self):
        while self.waiting and len(self.rows) < 2:
            self.rows.append(self.waiting.pop(0))
        assert self.gate.wait(30)
        if self.broken:
            self.broken = False
            raise ArithmeticError("no")
        found = [(row, Token(len(row.turn), 0.0, Likelihood(0.0, []))) for row in self.rows]
        for row, token in found:
            row.append(token.id)
        return found


class Counted:
    """An answer that ends after some tokens, or cannot be read."""

    def __init__(self, until, unreadable=False):
        self.row = Row([1], TurnSampling(0.0, 10**9), 0)
        self._until, self._unreadable = until, unreadable

    def take(self, token):
        if self._unreadable:
            raise LookupError("unreadable")
        last = token.id + 1 == self._until
        return [Delta(str(token.id), [token]), *([Ending((), "stop", self._until)] if last else [])]


async def collect(job):
    """Return what each answer said."""
    said = {}
    async for index, part in job.events():
        said[index] = said.get(index, "") + (part.content if isinstance(part, Delta) else "")
    return said


def in_loop(test, waiting=1):
    """Run a test with an engine thread of its own."""

    async def run():
        batch = Numbers()
        thread = EngineThread(batch, waiting)
        try:
            await test(thread, batch)
        finally:
            batch.gate.set()
            await thread.close()
        assert thread.answers == 0

    asyncio.run(run())


def test_answers_of_several_requests_are_sampled_side_by_side():
    async def test(thread, batch):
        first, second = thread.submit([Counted(4)]), thread.submit([Counted(2), Counted(3)])
        assert await collect(second) == {0: "01", 1: "012"}
        assert await collect(first) == {0: "0123"}
        assert batch.idle

    in_loop(test)


def test_a_full_queue_is_busy_until_an_answer_ends():
    async def test(thread, batch):
        batch.gate.clear()
        jobs = [thread.submit([Counted(2)]) for _ in range(3)]
        with pytest.raises(BusyError, match="3 answers"):
            thread.submit([Counted(1)])
        jobs[2].cancel()
        assert await collect(jobs[2]) == {}
        with pytest.raises(BusyError):
            thread.submit([Counted(1), Counted(1)])
        jobs[2] = thread.submit([Counted(1)])
        batch.gate.set()
        assert [await collect(job) for job in jobs] == [{0: "01"}, {0: "01"}, {0: "0"}]

    in_loop(test)


def test_a_cancelled_request_leaves_the_batch():
    async def test(thread, batch):
        endless, other = Counted(10**9), thread.submit([Counted(10**9)])
        job = thread.submit([endless])
        async for _, part in job.events():
            if part.content == "5":
                job.cancel()
        assert await collect(thread.submit([Counted(3)])) == {0: "012"}  # its place is free
        assert endless.row in batch.removed
        other.cancel()

    in_loop(test)


def test_after_a_failure_of_the_engine_the_next_request_runs():
    async def test(thread, batch):
        batch.broken = True
        broken = thread.submit([Counted(2), Counted(2)])
        with pytest.raises(ArithmeticError, match="no"):
            await collect(broken)
        assert await collect(thread.submit([Counted(2)])) == {0: "01"}

    in_loop(test)


def test_an_answer_that_cannot_be_read_leaves_the_others_alone():
    async def test(thread, batch):
        good, broken = thread.submit([Counted(3)]), thread.submit([Counted(3, unreadable=True)])
        with pytest.raises(LookupError, match="unreadable"):
            await collect(broken)
        assert await collect(good) == {0: "012"}

    in_loop(test)


def test_closing_ends_what_runs():
    async def test(thread, batch):
        job = thread.submit([Counted(10**9)])
        await asyncio.gather(thread.close(), collect(job))
        assert batch.idle or not thread.answers

    in_loop(test)


def test_what_is_sampled_when_the_server_has_ended_is_for_nobody():
    batch = Numbers()

    async def begin():
        batch.gate.clear()
        thread = EngineThread(batch, 1)
        thread.submit([Counted(10**9)])
        return thread

    thread = asyncio.run(begin())  # the loop has ended, as that of a server that is killed in mid answer
    batch.gate.set()
    thread._calls.put(None)
    thread._thread.join(30)
    assert not thread._thread.is_alive()
