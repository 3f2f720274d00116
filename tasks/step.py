"""Steps: functions that are called like functions, and run by the runner of the night, for real or as a dry run."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from pathlib import Path
from types import UnionType
from typing import Any, Generic, ParamSpec, Protocol, Union, get_args, get_origin, get_type_hints

from prefect import Task
from prefect.cache_policies import NO_CACHE, CachePolicy
from prefect.client.schemas.objects import State, TaskRun
from prefect.concurrency.sync import concurrency
from prefect.context import TaskRunContext
from prefect.filesystems import LocalFileSystem
from prefect.results import ResultStore, get_result_store
from pydantic import BaseModel

from clawpipe import faults
from clawpipe.config.block import Extension
from clawpipe.config.night import EnvironmentSpec
from clawpipe.environments.discovery import inputs_digest, source_digest
from clawpipe.environments.local_tools import files_of_tools, is_tool_file
from clawpipe.errors import BusyError
from clawpipe.extensions import ExtensionPoint, file_of
from clawpipe.json_types import Options
from clawpipe.store.digests import canonical_as, is_block, sha256_once
from clawpipe.store.home import Home
from clawpipe.store.keys import step_key
from clawpipe.store.open import open_store
from clawpipe.store.records import Holds, live_record
from clawpipe.store.refs import StepResult
from clawpipe.store.source import function_digest
from tasks.extensions import name_in, named_blocks

P = ParamSpec("P")
GPU_LIMIT = "gpu"
RETRY_DELAYS = [1.0, 4.0]
_LEASE_SECONDS = 60.0  # a killed holder frees the limit after this long; a living one renews it
_part: ContextVar[str] = ContextVar("part", default="")


def content_key(name: str, function: Callable[..., Any], arguments: Mapping[str, Any]) -> str:
    """Return the cache key of `function(**arguments)`, before any generation suffix; `clawpipe plan` shows it.

    Of settings, only the fields of the parameter's declared type are in the key; of an environment or engine, also its source and
    the content of the files that its options name; of an environment with a Python of its own, that Python's version and packages.

    Raises:
        TypeError: an argument has no canonical form.
        NotFoundError: no such environment or engine.
    """
    declared = get_type_hints(inspect.unwrap(function))
    inputs = {parameter: _as_declared(value, declared.get(parameter)) for parameter, value in arguments.items()}
    given = list(arguments.values())
    sources = {_source_of(point, named) for point, named in named_blocks(given)} | set(_files_of(given))
    return step_key(name, {"inputs": inputs, "extensions": sorted(sources)}, function_digest(function))


def _source_of(point: ExtensionPoint, block: BaseModel) -> str:
    """Return the digest of an extension's source, and of the Python and the task folders or image that the settings name."""
    if isinstance(block, EnvironmentSpec):
        return source_digest(block.name, block.python) + inputs_digest(block.name, block.options)
    return point.source_digest(name_in(block))


def _files_of(value: Any) -> Iterator[str]:
    """The digests of the files that options of extensions name: as a path, as `path/to/file.py:NAME`, or as a model's directory."""
    if isinstance(value, Extension):
        yield from (sha256_once(file) for option in _texts(value.options) for file in _files_at(option))
    elif isinstance(value, BaseModel):
        yield from (found for _, inner in value for found in _files_of(inner))
    elif isinstance(value, list | tuple):
        yield from (found for inner in value for found in _files_of(inner))


def _files_at(option: str) -> list[Path]:
    """The files of a model's directory, or the one file that an option names, with those of functions that it names as tools; none
    where it is no path, such as a long text."""
    try:
        place = file_of(option) or Path(option).expanduser()
        files = sorted(place.iterdir()) if (place / "config.json").is_file() else [place]
        named = files_of_tools(place) if is_tool_file(option) and place.is_file() else []
        return [file for file in [*files, *named] if file.is_file()]
    except (OSError, RuntimeError):
        return []


def _texts(options: Any) -> Iterator[str]:
    """Yield the texts among options, those in lists and blocks too, such as the models of a jury."""
    if isinstance(options, str):
        yield from filter(None, [options])
    elif isinstance(options, dict | list | tuple):
        inner = options.values() if isinstance(options, dict) else options
        yield from (text for one in inner for text in _texts(one))


def _as_declared(value: Any, hint: Any) -> Any:
    if not isinstance(value, BaseModel):
        return value
    choices = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    blocks = [choice for choice in choices if isinstance(choice, type) and isinstance(value, choice) and is_block(choice)]
    return canonical_as(value, blocks[0]) if blocks else value


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


def step(*, heavy: bool = False, cached: bool = True, holds: Holds | None = None) -> Callable[[Callable[P, StepResult]], Step[P]]:
    """Make a function a step of the same name, cached by its inputs' content and by the source that it reaches.

    The function takes refs and typed settings, opens the store, home and workers that it needs, and returns a StepResult. Only
    BusyError is retried.

    Args:
        heavy: the step uses the accelerator; the `gpu` limit lets one such step run at a time.
        cached: False for a step that runs every night.
        holds: checks whether a recorded result is still valid, beyond its artifacts being intact.
    """

    def decorate(function: Callable[P, StepResult]) -> Step[P]:
        task = Task(
            _with_fault_point(_on_the_accelerator(function) if heavy else function),
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


def _may_try_again(task: Task, task_run: TaskRun, state: State) -> bool:
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
        with concurrency(GPU_LIMIT, occupy=1, strict=True, lease_duration=_LEASE_SECONDS, raise_on_lease_renewal_failure=False):
            return function(*args, **kwargs)

    return alone
