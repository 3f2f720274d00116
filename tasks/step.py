"""Steps: functions that are called like functions, and run by the runner of the night, for real or as a dry run."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Generic, ParamSpec, Protocol

from prefect import Task
from prefect.cache_policies import NO_CACHE, CachePolicy
from prefect.client.schemas.objects import State, TaskRun
from prefect.context import TaskRunContext
from prefect.filesystems import LocalFileSystem
from prefect.results import ResultStore, get_result_store

from clawpipe.core.basics.json_types import Options
from clawpipe.core.store.home import Home
from clawpipe.core.store.open import open_store
from clawpipe.core.store.records import Holds, live_record
from clawpipe.core.store.refs import StepResult
from clawpipe.core.system import faults
from clawpipe.errors import BusyError
from tasks.accelerators import GPU_LIMIT, accelerator
from tasks.cluster import Anywhere, placed
from tasks.keys import content_key

P = ParamSpec("P")
RETRY_DELAYS = [1.0, 4.0]
_part: ContextVar[str] = ContextVar("part", default="")


@dataclass
class ContentKey(CachePolicy):
    """Prefect's cache policy for a step that returns a StepResult.

    Args:
        function: the function of the step.
        holds: checks whether a recorded result is still valid, beyond its artifacts being intact.
    """

    function: Callable[..., Any] = lambda: None
    holds: Holds | None = None

    def compute_key(self, task_ctx: TaskRunContext, inputs: Options, flow_parameters: Options, **kwargs: Any) -> str | None:
        key = content_key(task_ctx.task.name, self.function, inputs)
        return live_record(_records(get_result_store()), key, open_store(Home.from_env()), self.holds)[0]


def _records(store: ResultStore) -> Path:
    """Return the directory in which Prefect keeps its records."""
    storage = store.result_storage
    if not isinstance(storage, LocalFileSystem) or storage.basepath is None:
        raise TypeError(f"step records must lie in a local directory, not in {type(storage).__name__}")
    return Path(storage.basepath).expanduser()


@dataclass(frozen=True)
class Call:
    """A step with its arguments by name.

    name: name in the night's record, e.g. `round-1/train`.
    """

    name: str
    task: Task[..., StepResult]
    function: Callable[..., StepResult]
    arguments: Options
    cached: bool
    holds: Holds | None

    @property
    def key(self) -> str | None:
        """The key of the call's record, before any generation suffix; None for a step that runs every night.

        Raises:
            TypeError: an argument has no canonical form.
        """
        return content_key(self.task.name, self.function, self.arguments) if self.cached else None


class Runner(Protocol):
    """Runs the steps that are called."""

    def run(self, call: Call) -> StepResult: ...

    def run_together(self, calls: Sequence[Call]) -> list[StepResult]:
        """Run independent calls of one step; the journal counts them as part of the step that is called next."""
        ...


class Direct:
    """A runner that calls the functions at once, without cache or record."""

    def run(self, call: Call) -> StepResult:
        return call.function(**call.arguments)

    def run_together(self, calls: Sequence[Call]) -> list[StepResult]:
        return [self.run(call) for call in calls]


_runner: ContextVar[Runner] = ContextVar("runner", default=Direct())  # noqa: B039 - Direct holds no state


@contextmanager
def run_by(runner: Runner) -> Iterator[None]:
    """Run the steps called in this block with `runner`."""
    token = _runner.set(runner)
    try:
        yield
    finally:
        _runner.reset(token)


@contextmanager
def part(name: str) -> Iterator[None]:
    """Prefix the names of the steps called in this block: `round-1/train`."""
    token = _part.set(f"{name}/")
    try:
        yield
    finally:
        _part.reset(token)


@dataclass(frozen=True)
class Step(Generic[P]):
    """A function as a step of a night. A call runs it under the current runner and returns its result."""

    function: Callable[P, StepResult]
    task: Task[P, StepResult]
    name: str
    cached: bool
    holds: Holds | None

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> StepResult:
        return _runner.get().run(self.call(*args, **kwargs))

    def call(self, *args: P.args, **kwargs: P.kwargs) -> Call:
        """Return the call without running it.

        Raises:
            TypeError: the function does not take these arguments.
        """
        bound = inspect.signature(self.function).bind(*args, **kwargs)
        bound.apply_defaults()
        return Call(f"{_part.get()}{self.name}", self.task, self.function, dict(bound.arguments), self.cached, self.holds)

    def named(self, name: str) -> Step[P]:
        """Return the same step under another name in the night's record."""
        return replace(self, name=name)


def together(calls: Sequence[Call]) -> list[StepResult]:
    """Run calls of one step at the same time."""
    return _runner.get().run_together(calls)


def step(
    *, heavy: bool = False, anywhere: Anywhere = False, cached: bool = True, holds: Holds | None = None
) -> Callable[[Callable[P, StepResult]], Step[P]]:
    """Make a function a step of the same name, cached by its inputs' content and by the source that it reaches.

    The function takes refs and typed settings, opens the store, home and workers that it needs, and returns a StepResult. Only
    BusyError is retried.

    Args:
        heavy: the step uses an accelerator, and waits until one is free; see `tasks.accelerators`.
        anywhere: whether a cluster's worker may do it, where the night has a cluster; or with which arguments. It takes long,
            and reads and writes the store alone.
        cached: False for a step that runs every night.
        holds: checks whether a recorded result is still valid, beyond its artifacts being intact.
    """

    def decorate(function: Callable[P, StepResult]) -> Step[P]:
        called = placed(function, anywhere) if anywhere else function
        task = Task(
            _with_fault_point(_on_the_accelerator(called) if heavy else called),
            name=function.__name__,
            tags=[GPU_LIMIT] if heavy else None,
            cache_policy=ContentKey(function=function, holds=holds) if cached else NO_CACHE,
            persist_result=cached,
            result_serializer="json",
            retries=len(RETRY_DELAYS),
            retry_delay_seconds=RETRY_DELAYS,
            retry_condition_fn=_may_try_again,
        )
        return Step(function, task, function.__name__, cached, holds)

    return decorate


def _may_try_again(task: Task[..., Any], task_run: TaskRun, state: State) -> bool:
    return isinstance(state.result(raise_on_failure=False), BusyError)


def _with_fault_point(function: Callable[P, StepResult]) -> Callable[P, StepResult]:
    @functools.wraps(function)
    def recordable(*args: P.args, **kwargs: P.kwargs) -> StepResult:
        result = function(*args, **kwargs)
        faults.kill_point("step.before_record", function.__name__)
        return result

    return recordable


def _on_the_accelerator(function: Callable[P, StepResult]) -> Callable[P, StepResult]:
    @functools.wraps(function)
    def alone(*args: P.args, **kwargs: P.kwargs) -> StepResult:
        with accelerator():
            return function(*args, **kwargs)

    return alone
