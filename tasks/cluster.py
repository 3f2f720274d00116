"""Steps, and parts of steps, whose function a cluster's worker calls, where a night has a cluster."""

from __future__ import annotations

import atexit
import functools
import inspect
import math
import shutil
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from importlib import import_module
from time import monotonic as _now
from typing import Any, NamedTuple, ParamSpec, TypeVar

from clawpipe.core.basics.json_types import Options
from clawpipe.core.config.runtime import Runtime, TaskRunner
from clawpipe.core.store.artifacts import Store
from clawpipe.core.store.files import InUseError, exclusive
from clawpipe.core.store.home import Home
from clawpipe.core.store.identity import home_id
from clawpipe.core.store.open import open_store
from clawpipe.core.store.permissions import keep_private
from clawpipe.core.store.refs import StepResult
from clawpipe.core.store.source import code_digest
from clawpipe.core.store.spread import spread_to
from clawpipe.core.system.devices import meter
from clawpipe.core.system.progress import report
from clawpipe.errors import ConfigError
from clawpipe.play.clusters.base import Cluster, open_cluster
from clawpipe.play.workers.pool import WorkerPool, lent
from tasks.keys import content_key

P = ParamSpec("P")
T = TypeVar("T")
Anywhere = bool | Callable[[Options], bool]
_cluster: ContextVar[_Open | None] = ContextVar("cluster", default=None)
_pools: dict[str, WorkerPool] = {}  # of this process, by their settings: a model stays loaded from one step to the next
_lock = threading.Lock()
_code_of = functools.cache(code_digest)  # of a module; a process goes on with what it has loaded
_AT_ONCE = 64  # parts that are asked for; the cluster decides how many of them are done
_KEPT_SECONDS = 7 * 86_400.0  # of shards: longer than any step takes


@dataclass(frozen=True)
class _Open:
    """A cluster that does the work of steps."""

    cluster: Cluster
    runner: TaskRunner

    @property
    def gpus(self) -> float:
        """The GPUs that a step asks for."""
        return self.runner.resources.get("GPU", 0.0)


class Accelerators(NamedTuple):
    """The accelerators of a cluster, and how many of them a heavy step takes."""

    address: str
    number: int
    taken: int


@contextmanager
def on_cluster(runtime: Runtime) -> Iterator[None]:
    """Let the cluster that the settings name, if any, do the work of the steps in this block.

    Raises:
        BusyError, ConfigError: see `clawpipe.play.clusters.base.open_cluster`.
    """
    with open_cluster(runtime) as cluster:
        if cluster is None:
            yield
            return
        opened = _Open(cluster, runtime.task_runner)
        token = _cluster.set(opened)
        try:
            with spread_to(functools.partial(_side_by_side, opened)):
                yield
        finally:
            _cluster.reset(token)


def accelerators() -> Accelerators | None:
    """Return the accelerators of the enclosing block's cluster; None where there is none, and this machine's are used."""
    opened = _cluster.get()
    if opened is None:
        return None
    return Accelerators(opened.runner.address, opened.cluster.accelerators(), max(math.ceil(opened.gpus), 1))


def placed(function: Callable[P, StepResult], anywhere: Anywhere) -> Callable[P, StepResult]:
    """Return a step's function that is called where the enclosing block says. Its home and its store are those of that machine."""

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> StepResult:
        arguments = dict(inspect.signature(function).bind(*args, **kwargs).arguments)
        opened = _cluster.get()
        if opened is None or not (anywhere is True or (anywhere and anywhere(arguments))):
            return function(*args, **kwargs)
        key = content_key(function.__name__, function, arguments)
        result, seconds = _ask(opened, run_step, function, arguments, key)
        meter().add(opened.gpus * seconds)
        return result

    return call


def _side_by_side(opened: _Open, function: Callable[..., T], calls: Sequence[Options]) -> Iterator[T]:
    """Let workers call a part of a step with each of the arguments; see `clawpipe.core.store.spread`."""
    with ThreadPoolExecutor(_AT_ONCE) as threads:
        asked = [threads.submit(_ask, opened, run_part, function, one, _part_key(function, one)) for one in calls]
        try:
            for done, answer in enumerate(asked, start=1):
                result, seconds = answer.result()
                meter().add(opened.gpus * seconds)
                report(done, len(asked), "parts")
                yield result
        finally:
            threads.shutdown(cancel_futures=True)


def _part_key(function: Callable[..., Any], arguments: Options) -> str:
    """Return a key of a part, with all the code that its module reaches: it only tells whether two machines would do the same."""
    return content_key(function.__name__, function, arguments, _code_of(function.__module__))


def _ask(
    opened: _Open, ran: Callable[..., tuple[T, float]], function: Callable[..., T], arguments: Options, key: str
) -> tuple[T, float]:
    return opened.cluster.call(ran, function.__module__, function.__name__, arguments, key, home_id(Home.from_env()))


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
    function = getattr(import_module(module), name).function
    _require_same(name, home, key, lambda: content_key(name, function, arguments))
    return _timed(function, arguments)


def run_part(module: str, name: str, arguments: Options, key: str, home: str) -> tuple[Any, float]:
    """Call a part of a step with this machine's store; see `run_step`."""
    keep_private()
    function = getattr(import_module(module), name)
    _require_same(name, home, key, lambda: _part_key(function, arguments))
    return _timed(function, arguments, open_store(Home.from_env()))


def _require_same(name: str, home: str, key: str, own_key: Callable[[], str]) -> None:
    """Raise if this machine would not do what was asked for, or where nobody would find it."""
    if home_id(Home.from_env()) != home:
        fix = "start it with the same CLAWPIPE_SHARED, or with one CLAWPIPE_HOME on a shared disk"
        raise ConfigError(f"the worker on {socket.gethostname()} has another home, where nobody would find its results", name, fix)
    if own_key() != key:
        what = f"the worker on {socket.gethostname()} has other code than this machine, or another file that the settings name"
        raise ConfigError(what, name, "give it the same version of clawpipe and the same files, and start it again")


def _timed(function: Callable[..., T], arguments: Options, *store: Store) -> tuple[T, float]:
    """Call a function with the pool of this process. Returns the seconds, too."""
    begun = _now()
    _sweep(Home.from_env())
    with lent(_pool(arguments["runtime"])) if "runtime" in arguments else nullcontext():
        return function(*store, **arguments), _now() - begun


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
