"""The queue before the engine: order, limit, cancellation, failure."""

import asyncio
import threading

import pytest

from clawpipe.errors import BusyError
from clawpipe.serving.engine_thread import EngineThread


def counting(until, seen):
    """Work that yields numbers and records them in `seen`."""

    def work(cancelled):
        number = 0
        try:
            while number < until and not cancelled():
                yield number
                number += 1
        finally:
            seen.append(number)

    return work


def gated(gate, seen):
    def work(cancelled):
        seen.append(threading.current_thread().name)
        assert gate.wait(30)
        yield "done"

    return work


async def collect(job):
    return [event async for event in job.events()]


def in_loop(test):
    """Run a test with a separate engine thread."""

    async def run():
        thread = EngineThread(waiting=2)
        try:
            await test(thread)
        finally:
            await thread.close()

    asyncio.run(run())


def test_jobs_run_one_by_one_in_order():
    async def test(thread):
        gate, seen = threading.Event(), []
        first, second = thread.submit(gated(gate, seen)), thread.submit(counting(3, seen))
        gate.set()
        assert await collect(second) == [0, 1, 2]
        assert await collect(first) == ["done"]
        assert seen == ["engine_0", 3]

    in_loop(test)


def test_a_full_queue_is_busy_until_a_job_ends():
    async def test(thread):
        gate, seen = threading.Event(), []
        jobs = [thread.submit(gated(gate, seen)) for _ in range(3)]
        with pytest.raises(BusyError, match="3 requests"):
            thread.submit(gated(gate, seen))
        jobs[2].cancel()
        assert await collect(jobs[2]) == []  # it never ran
        jobs[2] = thread.submit(counting(1, seen))
        gate.set()
        assert [await collect(job) for job in jobs] == [["done"], ["done"], [0]]
        assert seen == ["engine_0", "engine_0", 1]

    in_loop(test)


def test_a_cancelled_job_stops_at_its_next_step():
    async def test(thread):
        seen = []
        job = thread.submit(counting(10**9, seen))
        async for number in job.events():
            if number == 5:
                job.cancel()
        assert 5 <= seen[0] < 10**9

    in_loop(test)


def test_a_failure_reaches_who_waits_and_the_next_job_runs():
    async def test(thread):
        def failing(cancelled):
            yield 1
            raise ArithmeticError("no")

        broken, good = thread.submit(failing), thread.submit(counting(2, []))
        with pytest.raises(ArithmeticError, match="no"):
            await collect(broken)
        assert await collect(good) == [0, 1]

    in_loop(test)
