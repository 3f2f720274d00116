"""The single thread that runs the engine, and its queue."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Generator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from typing import Generic, TypeVar

from clawpipe.errors import BusyError

T = TypeVar("T")
Work = Callable[[Callable[[], bool]], Generator[T, None, None]]  # the argument says whether the job is cancelled

WAITING = 16  # requests in the queue; further ones are refused


class Job(Generic[T]):
    """Work on the engine's thread, whose events are read on the event loop."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._events: asyncio.Queue[T | Exception | None] = asyncio.Queue()  # None: the end
        self._cancelled = threading.Event()
        self._future: Future[None] | None = None

    async def events(self) -> AsyncIterator[T]:
        """Yield what the work yields, until it ends or is cancelled; raises what the work raises."""
        while (event := await self._events.get()) is not None:
            if isinstance(event, Exception):
                raise event
            yield event

    def cancel(self) -> None:
        """Cancel the job: its events are no longer needed."""
        self._cancelled.set()
        if self._future and self._future.cancel():  # the work never started
            self._events.put_nowait(None)

    def run(self, work: Work[T]) -> None:
        """Run the work on the engine's thread."""
        try:
            with closing(work(self._cancelled.is_set)) as events:
                for event in events:
                    self._put(event)
        except Exception as error:
            self._put(error)
        finally:
            self._put(None)

    def start(self, future: Future[None]) -> None:
        self._future = future

    def _put(self, event: T | Exception | None) -> None:
        self._loop.call_soon_threadsafe(self._events.put_nowait, event)


class EngineThread:
    """Runs one job at a time, in order of arrival. Used from one event loop."""

    def __init__(self, waiting: int = WAITING) -> None:
        self._limit = waiting + 1
        self._jobs: set[Job] = set()
        self._threads = ThreadPoolExecutor(1, "engine")

    def submit(self, work: Work[T]) -> Job[T]:
        """Queue work.

        Raises:
            BusyError: the queue is full.
        """
        if len(self._jobs) >= self._limit:
            raise BusyError(f"{self._limit} requests are waiting already")
        job: Job[T] = Job()
        self._jobs.add(job)
        future = self._threads.submit(job.run, work)
        job.start(future)
        future.add_done_callback(lambda _: self._jobs.discard(job))
        return job

    def cancel(self) -> None:
        """Cancel every job."""
        for job in list(self._jobs):
            job.cancel()

    async def close(self) -> None:
        """Cancel every job and wait for the thread to end."""
        self.cancel()
        await asyncio.to_thread(self._threads.shutdown)
