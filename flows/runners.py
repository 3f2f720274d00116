"""Runners of a night's steps: PrefectRunner runs them, DryRunner only looks them up."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from typing import Any, ClassVar, Protocol, TypedDict, cast
from uuid import UUID

from prefect.client.schemas.objects import State
from prefect.concurrency.asyncio import ConcurrencySlotAcquisitionError
from prefect.futures import PrefectFuture

from clawpipe.core.store.home import Home
from clawpipe.core.store.records import find_record, share_records
from clawpipe.core.store.refs import StepResult
from clawpipe.core.system.devices import meter
from clawpipe.errors import BusyError
from clawpipe.record.nights.journal import Journal
from clawpipe.record.nights.status import entry
from tasks.step import Call

CACHED = "Cached"  # Prefect's name for the state of a task whose result was cached
_LAST = 50  # more than there are parallel trials of a sweep


class PrefectRunner:
    """Runs each step as a Prefect task and records it in the journal."""

    ended: ClassVar[deque[UUID]] = deque(maxlen=_LAST)  # the task runs of this process that ended last

    def __init__(self, journal: Journal, home: Home) -> None:
        self._journal, self._home = journal, home
        self._chunks: list[tuple[bool, float]] = []
        self._metered = 0.0  # accelerator seconds of the steps before this one

    def run(self, call: Call) -> StepResult:
        if not self._chunks:
            self._journal.start(call.name)
        begun = time.monotonic()
        task = call.task.with_options(task_run_name=call.name)  # Prefect's pages show the round
        state: State[StepResult] = cast(Any, task)(**call.arguments, return_state=True)  # Task's overloads hide the state
        if state.state_details.task_run_id:
            self.ended.append(state.state_details.task_run_id)
        result = result_of(state)
        key = self._shared(call)
        cached = state.name == CACHED and all(was_cached for was_cached, _ in self._chunks)
        seconds = time.monotonic() - begun + sum(spent for _, spent in self._chunks)
        self._chunks = []
        before, self._metered = self._metered, meter().seconds
        self._journal.finish(entry(call.name, cached, seconds, key, result, self._metered - before))
        return result

    def run_together(self, calls: Sequence[Call]) -> list[StepResult]:
        self._journal.start(calls[0].name)
        begun = time.monotonic()
        named = [call.task.with_options(task_run_name=f"{call.name}/{number}") for number, call in enumerate(calls, start=1)]
        futures = [task.submit(**call.arguments) for task, call in zip(named, calls, strict=True)]
        results = [self._chunk(*one, done, len(futures)) for done, one in enumerate(zip(futures, calls, strict=True), start=1)]
        cached = all(future.state.name == CACHED for future in futures)
        self._chunks = [(cached, time.monotonic() - begun)]
        return results

    def _chunk(self, future: PrefectFuture[Any], call: Call, done: int, total: int) -> StepResult:
        result = result_of(future)
        self._shared(call)
        self._journal.progress(done, total, "chunks")
        return result

    def _shared(self, call: Call) -> str | None:
        """Let other machines find the record of a call that has ended. Returns the call's key."""
        if key := call.key:
            share_records(self._home, key)
        return key


class _Ended(Protocol):
    def result(self) -> StepResult: ...


def result_of(ended: _Ended) -> StepResult:
    """Return the result of a step that has ended.

    Raises:
        BusyError: the server gave it no place on the accelerator, as an overloaded one does.
    """
    try:
        return ended.result()
    except ConcurrencySlotAcquisitionError as error:
        raise BusyError(f"the Prefect server gives no place on the accelerator: {error}", fix="run the command again") from error


class Unknown:
    """Placeholder for the result of a step that has not run: every attribute, item and call of it is unknown too.

    An unknown count is as large as is asked for: a plan shows the night that finds enough.
    """

    def __getattr__(self, name: str) -> Unknown:
        return self

    def __getitem__(self, name: str) -> Unknown:
        return self

    def __call__(self, *args: Any) -> Unknown:
        return self

    def __ge__(self, other: object) -> bool:
        return True


class PlannedStep(TypedDict):
    """A step as `clawpipe plan` shows it."""

    name: str
    key: str | None  # None: it depends on steps that have not run
    would: str  # run or cached


class DryRunner:
    """Looks each step up without running it; writes nothing. `steps` are the night's steps in order."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self.steps: list[PlannedStep] = []

    def run(self, call: Call) -> StepResult:
        key, result = self._look_up(call)
        self.steps.append({"name": call.name, "key": key, "would": "cached" if result else "run"})
        return result or cast(StepResult, Unknown())

    def run_together(self, calls: Sequence[Call]) -> list[StepResult]:
        return [self._look_up(call)[1] or cast(StepResult, Unknown()) for call in calls]

    def _look_up(self, call: Call) -> tuple[str | None, StepResult | None]:
        key = None if _holds_unknown(call.arguments) else call.key
        return key, find_record(self._home, key, call.holds) if key else None


def _holds_unknown(value: Any) -> bool:
    if isinstance(value, dict):
        return any(map(_holds_unknown, value.values()))
    if isinstance(value, list | tuple):
        return any(map(_holds_unknown, value))
    return isinstance(value, Unknown)
