"""A cluster of Ray's, which the user has started."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from contextlib import redirect_stdout
from importlib import import_module
from typing import Any, Self, TypeVar

from clawpipe.errors import BusyError, ConfigError

T = TypeVar("T")
_OPTIONS = {"CPU": "num_cpus", "GPU": "num_gpus", "memory": "memory"}  # Ray's own resources are options of their own
_TRIES = 3  # of a call whose worker or machine dies


class RayCluster:
    """A driver of the cluster.

    Args:
        address: of the head, e.g. host:6379.
        resources: what each call asks of a machine: CPU, GPU, memory in bytes, or names that `ray start --resources` was given.
        timeout: most seconds of a call, its wait for a worker included.

    Raises:
        BusyError: nobody answers there.
        ConfigError: Ray is not installed.
    """

    def __init__(self, address: str, resources: Mapping[str, float], timeout: float) -> None:
        try:
            self._ray: Any = import_module("ray")
        except ImportError as error:
            raise ConfigError("Ray is not installed", "runtime.task_runner", "pip install 'clawpipe[ray]'") from error
        self._address, self._timeout = address, timeout
        self._aside = redirect_stdout(sys.stderr)  # Ray prints that a worker died to stdout, which may be JSON for another program
        self._options: dict[str, Any] = {option: resources[name] for name, option in _OPTIONS.items() if name in resources}
        self._options["resources"] = {name: value for name, value in resources.items() if name not in _OPTIONS}
        try:
            self._ray.init(address=address, log_to_driver=False, configure_logging=False)
        except (ConnectionError, RuntimeError, ValueError, self._ray.exceptions.RayError) as error:
            what = f"Ray's head does not answer: {' '.join(str(error).split())}"
            fix = "start it, and name its address; where it asks for a token, set RAY_AUTH_MODE=token here, too"
            raise BusyError(what, address, fix) from error

    def call(self, function: Callable[..., T], *arguments: object) -> T:
        errors = self._ray.exceptions
        remote = self._ray.remote(max_retries=_TRIES, **self._options)(function)
        answer = remote.remote(*arguments)
        try:
            return self._ray.get(answer, timeout=self._timeout)
        except errors.RayTaskError as error:
            raise error.cause from error
        except errors.RayError as error:
            self._ray.cancel(answer, force=True)
            what = f"no worker of Ray's finished a step: {type(error).__name__}: {error}"
            raise BusyError(" ".join(what.split()), self._address, "look at the workers' logs, and run the same command") from error

    def accelerators(self) -> int:
        machines = [node["Resources"] for node in self._ray.nodes() if node["Alive"]]
        return int(sum(one.get("GPU", 0) for one in machines)) or sum(one.get("CPU", 0) > 0 for one in machines) or 1

    def __enter__(self) -> Self:
        self._aside.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._ray.shutdown()
        self._aside.__exit__(None, None, None)
