"""The single thread that runs the engine: answers join its batch and leave it between two tokens."""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from typing import NamedTuple, Protocol

from clawpipe.errors import BusyError
from clawpipe.model.engines.rows import Row
from clawpipe.model.engines.sampling import Token
from clawpipe.serve.serving.choice import Ending
from clawpipe.serve.serving.turn import Delta

WAITING = 64  # answers that may wait for a place in the batch; further ones are refused

_log = logging.getLogger(__name__)


class Batch(Protocol):
    """Rows that are sampled together; they join and leave between two steps. See `engines.continuous.ContinuousBatch`."""

    rows: list[Row]

    @property
    def at_once(self) -> int: ...

    @property
    def idle(self) -> bool: ...

    def add(self, row: Row) -> None: ...

    def remove(self, row: Row) -> None: ...

    def keep_ended(self, keeps: bool) -> None: ...

    def step(self) -> list[tuple[Row, Token]]:
        """Return the next tokens of rows; those that have their last one have left."""
        ...


class Answering(Protocol):
    """An answer while it is sampled, see `clawpipe.serve.serving.choice.Choice`."""

    @property
    def row(self) -> Row: ...

    def take(self, token: Token) -> list[Delta | Ending]: ...


class Event(NamedTuple):
    """A part of one of a request's answers."""

    choice: int
    part: Delta | Ending


Count = Callable[[Event | Exception, bool], None]  # takes the end of an answer, and whether the answer has content


class Job:
    """The answers to one request, whose events are read on the event loop."""

    def __init__(self, choices: Sequence[Answering], end: Callable[[Job], None], count: Count) -> None:
        self.choices = choices
        self.left = len(choices)
        self._end, self._count = end, count
        self._has_content = [False] * len(choices)
        self._events: asyncio.Queue[Event | Exception | None] = asyncio.Queue()  # None: the end
        self.over = asyncio.Event()

    async def events(self) -> AsyncIterator[Event]:
        """Yield events until all answers have ended or the job is cancelled; raises what the engine raised."""
        while (event := await self._events.get()) is not None:
            if isinstance(event, Exception):
                raise event
            yield event

    def cancel(self) -> None:
        """Cancel the job: the rest of its answers is not sampled."""
        self._end(self)

    def put(self, event: Event | Exception | None) -> None:
        """Hand over an event, on the event loop."""
        self._events.put_nowait(event)
        if isinstance(event, Exception):
            self._count(event, False)
        elif event is None:
            self.over.set()
        elif isinstance(event.part, Ending):
            self.left -= 1
            self._count(event, self._has_content[event.choice])
        elif event.part.content:
            self._has_content[event.choice] = True


class EngineThread:
    """Runs the batch while there is something to sample. Used from one event loop.

    Attributes:
        limit: answers that may run or wait.
    """

    def __init__(self, batch: Batch, waiting: int = WAITING) -> None:
        self._batch, self.limit = batch, batch.at_once + waiting
        self._jobs: set[Job] = set()  # on the event loop; what follows is the thread's own
        self._places: dict[Row, tuple[Job, int]] = {}
        self._calls: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()  # None: the thread ends
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)

    @property
    def answers(self) -> int:
        """Return the number of running and waiting answers."""
        return sum(job.left for job in self._jobs)

    @property
    def running(self) -> int:
        """Return the number of running answers, which share the batch."""
        return len(self._batch.rows)

    def submit(self, choices: Sequence[Answering], count: Count = lambda event, has_content: None) -> Job:
        """Let answers join; `count` is called for each that ends.

        Raises:
            BusyError: too many are waiting already.
        """
        if self.answers + len(choices) > self.limit:
            raise BusyError(f"{self.answers} answers are running or waiting already, and {self.limit} may be")
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
            self._thread.start()
        job = Job(choices, self._cancel, count)
        self._jobs.add(job)
        self._calls.put(lambda: self._join(job))
        return job

    def cancel(self) -> None:
        """Cancel every job."""
        for job in list(self._jobs):
            job.cancel()

    def keep_ended(self, keeps: bool) -> None:
        """Set whether keys and values of ended answers are kept, see `ContinuousBatch.keep_ended`."""
        self._calls.put(lambda: self._batch.keep_ended(keeps))

    async def drained(self) -> None:
        """Wait until no answer runs or waits."""
        while self._jobs:
            await asyncio.wait([asyncio.ensure_future(job.over.wait()) for job in self._jobs])

    async def close(self) -> None:
        """Cancel every job and wait for the thread to end."""
        self.cancel()
        self._calls.put(None)
        if self._loop is not None:
            await asyncio.to_thread(self._thread.join)

    def _cancel(self, job: Job) -> None:
        if job in self._jobs:
            self._jobs.discard(job)
            job.put(None)
            self._calls.put(lambda: self._leave(job))

    def _run(self) -> None:
        while True:
            while not self._calls.empty() or self._batch.idle:
                call = self._calls.get()
                if call is None:
                    return
                call()
            if not self._batch.idle:
                self._step()

    def _join(self, job: Job) -> None:
        for index, choice in enumerate(job.choices):
            self._places[choice.row] = job, index
            self._batch.add(choice.row)

    def _leave(self, job: Job) -> None:
        for choice in job.choices:
            if self._places.pop(choice.row, None):
                self._batch.remove(choice.row)

    def _step(self) -> None:
        """Run one forward pass, and send its events together."""
        try:
            sampled = self._batch.step()
        except Exception as error:
            _log.exception("a pass of the engine failed")
            self._fail({self._places[row][0] for row in self._batch.rows}, error)
            return
        events: list[tuple[Job, Event | Exception]] = []
        for row, token in sampled:
            job, index = self._places.get(row, (None, 0))
            if job is None:
                continue  # another answer of its request has failed
            try:
                parts = job.choices[index].take(token)
            except Exception as error:
                _log.exception("an answer cannot be read")
                self._leave(job)
                events.append((job, error))
                continue
            events += [(job, Event(index, part)) for part in parts]
            if isinstance(parts[-1], Ending):
                del self._places[row]
                self._batch.remove(row)
        self._send(events)

    def _fail(self, jobs: set[Job], error: Exception) -> None:
        for job in jobs:
            self._leave(job)
        self._send([(job, error) for job in jobs])

    def _send(self, events: Sequence[tuple[Job, Event | Exception]]) -> None:
        if not events or self._loop is None:
            return
        try:
            self._loop.call_soon_threadsafe(self._deliver, events)
        except RuntimeError:
            if not self._loop.is_closed():
                raise  # else the server has ended, and nobody waits for these

    def _deliver(self, events: Sequence[tuple[Job, Event | Exception]]) -> None:
        """Deliver events to their jobs, on the event loop."""
        for job, event in events:
            if job not in self._jobs:
                continue  # cancelled meanwhile
            job.put(event)
            if job.left == 0 or isinstance(event, Exception):
                self._jobs.discard(job)
                job.put(None)
