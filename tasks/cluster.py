"""Steps whose function a cluster's worker calls, where a night has a cluster."""

from __future__ import annotations

import atexit
import functools
import inspect
import shutil
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from contextvars import ContextVar
from importlib import import_module
from time import monotonic as _now
from typing import ParamSpec

from clawpipe.clusters.base import Cluster, open_cluster
from clawpipe.config.runtime import Runtime
from clawpipe.devices import meter
from clawpipe.errors import ConfigError
from clawpipe.json_types import Options
from clawpipe.store.files import InUseError, exclusive
from clawpipe.store.home import Home
from clawpipe.store.identity import home_id
from clawpipe.store.permissions import keep_private
from clawpipe.store.refs import StepResult
from clawpipe.workers.pool import WorkerPool, lent
from tasks.keys import content_key

P = ParamSpec("P")
Anywhere = bool | Callable[[Options], bool]
_cluster: ContextVar[tuple[Cluster, float] | None] = ContextVar("cluster", default=None)
_pools: dict[str, WorkerPool] = {}  # of this process, by their settings: a model stays loaded from one step to the next
_lock = threading.Lock()
_KEPT_SECONDS = 7 * 86_400.0  # of shards: longer than any step takes


@contextmanager
def on_cluster(runtime: Runtime) -> Iterator[None]:
    """Let the cluster that the settings name, if any, do the work of the steps in this block.

    Raises:
        BusyError, ConfigError: see `clawpipe.clusters.base.open_cluster`.
    """
    with open_cluster(runtime) as cluster:
        token = _cluster.set((cluster, runtime.task_runner.resources.get("GPU", 0.0)) if cluster else None)
        try:
            yield
        finally:
            _cluster.reset(token)


def placed(function: Callable[P, StepResult], anywhere: Anywhere) -> Callable[P, StepResult]:
    """Return a step's function that is called where the enclosing block says. Its home and its store are those of that machine."""

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> StepResult:
        arguments = dict(inspect.signature(function).bind(*args, **kwargs).arguments)
        found = _cluster.get()
        if found is None or not (anywhere is True or (anywhere and anywhere(arguments))):
            return function(*args, **kwargs)
        cluster, gpus = found
        key = content_key(function.__name__, function, arguments)
        home = home_id(Home.from_env())
        result, seconds = cluster.call(run_step, function.__module__, function.__name__, arguments, key, home)
        meter().add(gpus * seconds)
        return result

    return call


def run_step(module: str, name: str, arguments: Options, key: str, home: str) -> tuple[StepResult, float]:
    """Call a step's function in this process, a cluster's worker. Returns its result and the seconds that it took.

    Args:
        key: of the call, where it was asked for.
        home: id of the home there.

    Raises:
        ConfigError: this process has another home, so nobody would find the result; or the same call has another key here, so the
            result would be another one.
        ClawpipeError: whatever the function raised.
    """
    keep_private()
    begun = _now()
    _sweep(Home.from_env())
    if home_id(Home.from_env()) != home:
        fix = "start it with the same CLAWPIPE_SHARED, or with one CLAWPIPE_HOME on a shared disk"
        raise ConfigError(f"the worker on {socket.gethostname()} has another home, where nobody would find its results", name, fix)
    function = getattr(import_module(module), name).function
    if content_key(name, function, arguments) != key:
        what = f"the worker on {socket.gethostname()} has other code than this machine, or another file that the settings name"
        raise ConfigError(what, name, "give it the same version of clawpipe and the same files, and start it again")
    with lent(_pool(arguments["runtime"])) if "runtime" in arguments else nullcontext():
        return function(**arguments), _now() - begun


def _sweep(home: Home) -> None:
    """Remove old shards, which the night that ends removes on its own machine alone."""
    old = time.time() - _KEPT_SECONDS
    for shard in home.work.glob("shards/*/"):
        with suppress(FileNotFoundError, InUseError):  # another worker of this home was quicker, or goes on with it
            if shard.stat().st_mtime < old:
                with exclusive(shard.with_suffix(".lock"), "the shard"):
                    shutil.rmtree(shard)


def _pool(runtime: Runtime) -> WorkerPool:
    """Return this process's pool for these settings. It ends with the process."""
    settings = runtime.model_dump_json(exclude={"task_runner"})
    with _lock:
        if settings not in _pools:
            _pools[settings] = WorkerPool(runtime, Home.from_env().logs)
            atexit.register(_pools[settings].close)
        return _pools[settings]
