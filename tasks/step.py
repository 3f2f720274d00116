"""What all steps have in common: the cache, the retries, the accelerator."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any, ParamSpec

from prefect import Task
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State, TaskRun
from prefect.concurrency.sync import concurrency

from clawpipe import faults
from clawpipe.errors import BusyError
from clawpipe.store.records import Holds
from clawpipe.store.refs import StepResult
from tasks.cache import ContentKey

P = ParamSpec("P")

GPU_LIMIT = "gpu"
RETRY_DELAYS = [1.0, 4.0]
_LEASE_SECONDS = 60.0  # a killed holder frees the limit after this long; a living one renews it


def step(
    *,
    module: str | tuple[str, ...],
    libraries: tuple[str, ...] = (),
    ignore: tuple[str, ...] = ("runtime",),
    heavy: bool = False,
    cached: bool = True,
    holds: Holds | None = None,
    run_name: str | None = None,
) -> Callable[[Callable[P, StepResult]], Task[P, StepResult]]:
    """Make a function a step: a Prefect task, named like it, that is cached by content.

    Only BusyError is tried again. Call it with `return_state=True` to learn whether it ran: `state.name == "Cached"`.

    Args:
        module: the module of clawpipe that does the work; several where a child process does a part of it.
        libraries: distributions whose version changes the result.
        ignore: parameters that do not change the result.
        heavy: it uses the accelerator: one at a time holds the `gpu` limit.
        cached: False for a step that runs every night.
        holds: what must still be true of a recorded result, besides its artefacts, for the step to count as done.
        run_name: template of the run's name over the parameters, e.g. "train {label}".
    """

    def decorate(function: Callable[P, StepResult]) -> Task[P, StepResult]:
        return Task(
            _with_fault_point(_on_the_accelerator(function) if heavy else function),
            name=function.__name__,
            task_run_name=run_name,
            tags=[GPU_LIMIT] if heavy else None,
            cache_policy=ContentKey(module=module, libraries=libraries, ignore=ignore, holds=holds) if cached else NO_CACHE,
            persist_result=cached,
            result_serializer="json",
            retries=len(RETRY_DELAYS),
            retry_delay_seconds=RETRY_DELAYS,
            retry_condition_fn=_may_try_again,
        )

    return decorate


def content_key(task: Task[..., StepResult], inputs: Mapping[str, Any]) -> str | None:
    """The key of calling `task(**inputs)`, before any generation; None for a step that is never cached. No step runs.

    Raises:
        TypeError: it cannot be called so, or an input has no canonical form.
    """
    if not isinstance(task.cache_policy, ContentKey):
        return None
    call = inspect.signature(task.fn).bind(**inputs)
    call.apply_defaults()
    return task.cache_policy.content_key(task.name, call.arguments)


def holds_of(task: Task[..., StepResult]) -> Holds | None:
    """What must still be true of the step's recorded result."""
    return task.cache_policy.holds if isinstance(task.cache_policy, ContentKey) else None


def _may_try_again(task: Task, task_run: TaskRun, state: State) -> bool:
    return isinstance(state.result(raise_on_failure=False), BusyError)


def _with_fault_point(function: Callable[P, StepResult]) -> Callable[P, StepResult]:
    @functools.wraps(function)
    def recordable(*args: P.args, **kwargs: P.kwargs) -> StepResult:
        result = function(*args, **kwargs)
        faults.point("step.before_record", function.__name__)
        return result

    return recordable


def _on_the_accelerator(function: Callable[P, StepResult]) -> Callable[P, StepResult]:
    @functools.wraps(function)
    def alone(*args: P.args, **kwargs: P.kwargs) -> StepResult:
        with concurrency(GPU_LIMIT, occupy=1, strict=True, lease_duration=_LEASE_SECONDS, raise_on_lease_renewal_failure=False):
            return function(*args, **kwargs)

    return alone
