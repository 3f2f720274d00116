"""What a cluster is for a night, and how one is opened."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol, TypeVar

from clawpipe.core.config.runtime import Runtime

T = TypeVar("T")


class Cluster(Protocol):
    """Processes on one machine or several, each of which can call a function for us. Threads may share it.

    A cluster of Dask's tells the block's listener of the progress that the function reports (`clawpipe.core.system.progress`).
    """

    def call(self, function: Callable[..., T], *arguments: object) -> T:
        """Return what the function returns in a free worker. A call whose worker dies is made again by another one.

        Raises:
            BusyError: its workers died again and again, nobody took it in time, or the cluster does not answer.
            Exception: whatever the function raised.
        """
        ...

    def accelerators(self) -> int:
        """Return the number of its GPUs now; where nobody has declared any, that of its workers. At least 1."""
        ...


@contextmanager
def open_cluster(runtime: Runtime) -> Iterator[Cluster | None]:
    """Yield the cluster that the settings name; None where a night's work is done by its own process.

    Raises:
        BusyError: the cluster does not answer.
        ConfigError: its library is not installed.
    """
    if runtime.task_runner.name == "threads":
        yield None
        return
    if runtime.task_runner.name == "dask":
        from clawpipe.play.clusters.dask import DaskCluster as Opened
    else:
        from clawpipe.play.clusters.ray import RayCluster as Opened
    with Opened(runtime.task_runner.address, runtime.task_runner.resources, runtime.step_timeout) as cluster:
        yield cluster
