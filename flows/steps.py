"""How `the_night` calls its steps: for real, or on paper."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol, cast

from prefect import Task
from prefect.client.schemas.objects import State
from prefect.futures import PrefectFuture

from clawpipe.nights.journal import Journal
from clawpipe.nights.record import entry
from clawpipe.store.home import Home
from clawpipe.store.records import find_record
from clawpipe.store.refs import StepResult
from tasks.step import content_key, holds_of

CACHED = "Cached"  # the name of the state that Prefect gives to a task whose result it found


class Steps(Protocol):
    """Calls a step and hands back its result."""

    def __call__(self, task: Task[..., StepResult], *, name: str = "", **inputs: Any) -> Any: ...
    def map(self, task: Task[..., StepResult], over: str, values: Sequence[Any], **inputs: Any) -> list[Any]: ...
    def within(self, part: str) -> Any: ...


class _Named:
    """Step names: `round-1/train` inside of `within("round-1")`."""

    _part = ""

    @contextmanager
    def within(self, part: str) -> Iterator[None]:
        self._part = f"{part}/"
        try:
            yield
        finally:
            self._part = ""

    def _name(self, task: Task[..., StepResult], name: str) -> str:
        return f"{self._part}{name or task.name}"


class RealSteps(_Named):
    """Runs each step as a Prefect task and writes it into the journal."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._chunks: list[tuple[bool, float]] = []

    def __call__(self, task: Task[..., StepResult], *, name: str = "", **inputs: Any) -> StepResult:
        step = self._name(task, name)
        if not self._chunks:
            self._journal.start(step)
        begun = time.monotonic()
        state: State[StepResult] = cast(Any, task)(**inputs, return_state=True)  # its overload hides the state
        result = state.result()
        cached = state.name == CACHED and all(was_cached for was_cached, _ in self._chunks)
        seconds = time.monotonic() - begun + sum(spent for _, spent in self._chunks)
        self._chunks = []
        self._journal.finish(entry(step, cached, seconds, content_key(task, inputs), result))
        return result

    def map(self, task: Task[..., StepResult], over: str, values: Sequence[Any], **inputs: Any) -> list[StepResult]:
        """One task a value, side by side. They count as part of the step that is called next."""
        self._journal.start(f"{self._part}generate_rollouts")
        begun = time.monotonic()
        futures = [task.submit(**inputs, **{over: value}) for value in values]
        results = [self._chunk(future, done + 1, len(futures)) for done, future in enumerate(futures)]
        cached = all(future.state.name == CACHED for future in futures)
        self._chunks = [(cached, time.monotonic() - begun)]
        return results

    def _chunk(self, future: PrefectFuture, done: int, total: int) -> StepResult:
        result = future.result()
        self._journal.progress(done, total, "chunks")
        return result


class Unknown:
    """Stands for whatever a step that has not run will give: anything asked of it is unknown as well."""

    def __getattr__(self, name: str) -> Unknown:
        return self

    def __getitem__(self, name: str) -> Unknown:
        return self


class PaperSteps(_Named):
    """Looks each step up instead of running it; touches nothing."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self.steps: list[dict[str, str | None]] = []

    def __call__(self, task: Task[..., StepResult], *, name: str = "", **inputs: Any) -> StepResult | Unknown:
        key, result = self._look_up(task, inputs)
        self.steps.append({"name": self._name(task, name), "key": key, "would": "cached" if result else "run"})
        return result or Unknown()

    def map(self, task: Task[..., StepResult], over: str, values: Sequence[Any], **inputs: Any) -> list[StepResult | Unknown]:
        return [self._look_up(task, inputs | {over: value})[1] or Unknown() for value in values]

    def _look_up(self, task: Task[..., StepResult], inputs: dict[str, Any]) -> tuple[str | None, StepResult | None]:
        if _holds_unknown(inputs):
            return None, None
        key = content_key(task, inputs)
        return key, find_record(self._home, key, holds_of(task)) if key else None


def _holds_unknown(value: Any) -> bool:
    if isinstance(value, dict):
        return any(map(_holds_unknown, value.values()))
    if isinstance(value, list | tuple):
        return any(map(_holds_unknown, value))
    return isinstance(value, Unknown)
