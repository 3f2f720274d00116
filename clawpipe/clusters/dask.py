"""A cluster of Dask's: a scheduler and its workers, which the user has started."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Self, TypeVar

from clawpipe.errors import BusyError, ConfigError

T = TypeVar("T")
_ANSWERS_WITHIN = 30.0  # seconds


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
        future = self._client.submit(function, *arguments, pure=False, resources=self._resources or None)
        try:
            return future.result(timeout=self._timeout)
        except self._lost as error:
            future.cancel()
            what = f"no worker of Dask's finished a step: {type(error).__name__}: {error}"
            raise BusyError(" ".join(what.split()), self._address, "look at the workers' logs, and run the same command") from error

    def accelerators(self) -> int:
        workers = self._client.scheduler_info(n_workers=-1)["workers"].values()
        return int(sum(worker["resources"].get("GPU", 0) for worker in workers)) or len(workers) or 1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()
