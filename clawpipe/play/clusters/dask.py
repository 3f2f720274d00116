"""A cluster of Dask's: a scheduler and its workers, which the user has started."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from queue import Empty, SimpleQueue
from time import monotonic
from typing import Any, Self, TypeVar
from uuid import uuid4

from clawpipe.core.system.progress import Listener, listener, reporting_to
from clawpipe.errors import BusyError, ConfigError

T = TypeVar("T")
_ANSWERS_WITHIN = 30.0  # seconds


class _Teller:
    """Sends progress from a worker; Dask keeps the order of what a worker sends."""

    def __init__(self, topic: str) -> None:
        self._topic, self._worker = topic, import_module("distributed").get_worker()

    def progress(self, done: float, total: float, note: str = "") -> None:
        self._worker.log_event(self._topic, ("progress", [done, total, note]))

    def update(self, metrics: Mapping[str, Any]) -> None:
        self._worker.log_event(self._topic, ("update", [dict(metrics)]))


def _telling(topic: str, function: Callable[..., T], *arguments: object) -> T:
    """Call the function in a worker, and tell of its progress."""
    with reporting_to(_Teller(topic)):
        return function(*arguments)


class DaskCluster:
    """A client of the scheduler.

    Args:
        address: of the scheduler, e.g. tcp://host:8786.
        resources: what each call asks of a worker, by the names that `dask worker --resources` was given.
        timeout: most seconds of a call, its wait for a worker included.

    Raises:
        BusyError: nobody answers there.
        ConfigError: Dask is not installed.
    """

    def __init__(self, address: str, resources: Mapping[str, float], timeout: float) -> None:
        try:
            import distributed as dask
            from distributed.comm.core import CommClosedError
            from distributed.scheduler import KilledWorker
        except ImportError as error:
            raise ConfigError("Dask is not installed", "runtime.task_runner", "pip install 'clawpipe[dask]'") from error
        self._address, self._resources, self._timeout = address, dict(resources), timeout
        self._lost = (KilledWorker, CommClosedError, dask.CancelledError, TimeoutError)
        try:
            self._client = dask.Client(address, timeout=_ANSWERS_WITHIN, set_as_default=False)
        except (OSError, TimeoutError, ValueError) as error:
            what = f"Dask's scheduler does not answer: {type(error).__name__}"
            raise BusyError(what, address, "start it, and name its address in runtime.task_runner.address") from error

    def call(self, function: Callable[..., T], *arguments: object) -> T:
        topic, deadline = f"clawpipe-{uuid4().hex}", monotonic() + self._timeout
        future = self._client.submit(_telling, topic, function, *arguments, pure=False, resources=self._resources or None)
        try:
            if heard := listener():
                self._hear(topic, future, heard, deadline)
            return future.result(timeout=max(deadline - monotonic(), 0.001))  # 0 would be no limit
        except self._lost as error:
            future.cancel()
            what = f"no worker of Dask's finished a step: {type(error).__name__}: {error}"
            raise BusyError(" ".join(what.split()), self._address, "look at the workers' logs, and run the same command") from error

    def _hear(self, topic: str, future: Any, heard: Listener, deadline: float) -> None:
        """Let the listener hear of the call's progress until it has ended, or its time is over.

        Dask's own thread must not wait for the listener, so this one asks for what came.
        """
        events: SimpleQueue[tuple[str, list[Any]] | None] = SimpleQueue()
        self._client.subscribe_topic(topic, lambda event: events.put(event[1]))
        future.add_done_callback(lambda _: events.put(None))
        try:
            while event := events.get(timeout=max(deadline - monotonic(), 0.0)):
                name, arguments = event
                getattr(heard, name)(*arguments)
        except Empty:
            return
        finally:
            self._client.unsubscribe_topic(topic)

    def accelerators(self) -> int:
        workers = self._client.scheduler_info(n_workers=-1)["workers"].values()
        return int(sum(worker["resources"].get("GPU", 0) for worker in workers)) or len(workers) or 1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()
