"""The long-lived services of a home: Prefect server, MLflow server, worker, and the deployments of prefect.yaml."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Self

import yaml

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.core.ledger.open import VARIABLE, ledger_place, open_ledger, own_registry
from clawpipe.core.services import prefect_server
from clawpipe.core.services.prefect_server import Api, environment, logs
from clawpipe.core.services.secret import home_secret
from clawpipe.core.services.service import Service, rotate, running
from clawpipe.core.store.files import exclusive, write_atomic
from clawpipe.core.store.home import Home
from clawpipe.core.system.ports import LOOPBACK, free_port, is_free
from clawpipe.errors import BusyError, ConfigError, NotFoundError

START_SECONDS = 180.0
WORK_POOL = "clawpipe"
_LOOK_SECONDS = 0.5
_FIRST_DELAY, _LAST_DELAY = 1.0, 60.0  # seconds before a worker is restarted
_FAILING = 8.0  # a delay that says that the service keeps ending
_SETTLED = 60.0  # seconds after which a restart counts as successful


@contextmanager
def mlflow_server(home: Home, port: int) -> Iterator[tuple[Service, str]]:
    """Run an MLflow server on a loopback port, which asks for the home's secret. Yields when healthy.

    The database must exist, because a killed migration leaves one that never opens. Artifacts are not proxied: experiments
    store plain paths below the home, so that nights with and without the server read each other's artifacts.

    Yields:
        the service, and its URL, which is also the tracking URI.
    """
    url = f"http://{LOOPBACK}:{port}"
    command = [
        *(sys.executable, "-m", "mlflow", "server", "--host", LOOPBACK, "--port", str(port), "--workers", "1"),
        *("--app-name", "clawpipe"),  # flows.apps.mlflow, by the entry point in pyproject.toml
        *("--backend-store-uri", f"sqlite:///{home.mlflow / 'mlflow.db'}"),
        *("--no-serve-artifacts", "--default-artifact-root", str(home.mlflow / "artifacts")),
    ]
    env = {"MLFLOW_DISABLE_TELEMETRY": "true", "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
    with running("MLflow server", command, logs(home) / "mlflow-server.log", env | mlflow_credentials(home)) as service:
        service.wait_healthy(f"{url}/health", START_SECONDS)
        yield service, url


def mlflow_credentials(home: Home) -> dict[str, str]:
    """Return the variables that clients of the MLflow server need in their environment."""
    user, _, password = home_secret(home).partition(":")
    return {"MLFLOW_TRACKING_USERNAME": user, "MLFLOW_TRACKING_PASSWORD": password}


@dataclass(frozen=True)
class Stack:
    """The running services and their addresses."""

    api_url: str
    mlflow_url: str
    services: tuple[Service, ...]
    restarted: tuple[Restarted, ...] = ()

    def watch(self) -> None:
        """Watch the services until an interrupt or the end of a server. A worker or a watcher that ends is restarted; logs rotate.

        Raises:
            BusyError: a server ended; the message holds the end of its log.
        """
        while True:
            rotate(self.services[0].log.parent)
            for one in self.restarted:
                one.look(time.monotonic())
            for service in self.services:
                if service.ended() is not None:
                    what = f"{service.name} ended with code {service.ended()}; the end of its log:\n{service.tail()}"
                    raise BusyError(what, str(service.log), "start again with `clawpipe up`")
            time.sleep(_LOOK_SECONDS)


class Restarted:
    """A service that is restarted when it ends: after a second, then after twice as long each time that it soon ends again.

    Args:
        start: runs the service for the length of a block.
        say: called with a message when the service ended, and when it runs again.
        failing: called with a message when it has ended three times within a minute or so.
    """

    def __init__(
        self,
        start: Callable[[], AbstractContextManager[Service]],
        say: Callable[[str], None],
        failing: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._start, self._say, self._failing = start, say, failing
        self._open = ExitStack()
        self._delay, self._due = _FIRST_DELAY, 0.0
        self.service: Service | None = None

    def __enter__(self) -> Self:
        self._run(time.monotonic())
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def look(self, now: float) -> None:
        """Restart the service if it is time. `now` is in seconds of the monotonic clock."""
        if self.service is None:
            if now >= self._due:
                self._run(now)
                self._say("it runs again")
        elif self.service.ended() is not None:
            self._delay = _FIRST_DELAY if now - self._begun > _SETTLED else min(2 * self._delay, _LAST_DELAY)
            self._due = now + self._delay
            what = f"the {self.service.name} ended with code {self.service.ended()} and starts again in {self._delay:g} s"
            self._say(f"{what}; its log is {self.service.log}")
            if self._delay == _FAILING:
                self._failing(
                    f"the {self.service.name} keeps ending, now with code {self.service.ended()}; its log is {self.service.log}"
                )
            self._open.close()
            self.service = None

    def _run(self, now: float) -> None:
        self._begun = now
        self.service = self._open.enter_context(self._start())


@contextmanager
def stack(
    home: Home,
    prefect_port: int,
    mlflow_port: int,
    watcher_port: int,
    deployments: JsonObject,
    at_once: int,
    say: Callable[[str], None],
    failing: Callable[[str], None],
) -> Iterator[Stack]:
    """Run all services for the length of the block, with the project deployed.

    Args:
        deployments: contents of the prefect.yaml to deploy, see `flows.deployments`; kept in the home.
        at_once: nights that run at a time.
        say: called with what happens.
        failing: called with what people must be told of: a service that keeps ending.

    Raises:
        BusyError: `clawpipe up` already runs on this home, or a service does not start.
        ConfigError: prefect.yaml cannot be deployed.
    """
    project = project_directory()
    with ExitStack() as open_, exclusive(home.locks / "up.lock", "`clawpipe up` on this home"):
        say("starting the Prefect server")
        prefect, url = open_.enter_context(prefect_server.server(home, prefect_port))
        env = environment(home, Api(url, private=True))
        names = [one["name"] for one in deployments["deployments"]]
        _finish([sys.executable, "-m", "flows.bootstrap", *_queues(deployments), "--", *names], project, env)
        say("starting the MLflow server")
        mlflow, mlflow_url = open_.enter_context(mlflow_server(home, mlflow_port))
        say("deploying prefect.yaml")
        file = home.prefect / "prefect.yaml"
        write_atomic(file, yaml.safe_dump(deployments, sort_keys=False).encode())
        env |= {"MLFLOW_TRACKING_URI": mlflow_url, VARIABLE: _ledger(home), **mlflow_credentials(home)}
        deploy = ["deploy", "--all", "--no-prompt", "--prefect-file", str(file)]
        _finish([sys.executable, "-m", "prefect", *deploy], project, env)
        commands = _worker_commands(deployments, at_once) | {"watcher": _watcher_command(watcher_port, deployments)}
        restarted = [
            open_.enter_context(Restarted(partial(running, name, command, logs(home) / f"{name}.log", env), say, failing))
            for name, command in commands.items()
        ]
        prefect_server.announce(home, url, mlflow_url)
        yield Stack(url, mlflow_url, (prefect, mlflow), tuple(restarted))


def _worker_commands(deployments: JsonObject, at_once: int) -> dict[str, list[str]]:
    """Return the commands of the workers by their names. Where several models have nights, these have a worker of their own, so
    that imports do not wait for its limit."""
    start = [sys.executable, "-m", "prefect", "worker", "start", "--pool", WORK_POOL, "--type", "process"]
    queues = _queues(deployments)
    if len({queue for one in deployments["deployments"] if one["schedules"] and (queue := _queue(one))}) < 2:
        return {"worker": start}
    named = [word for queue in queues for word in ("--work-queue", queue)]
    return {"worker": [*start, "--limit", str(at_once), *named], "import-worker": [*start, "--work-queue", "default"]}


def _watcher_command(port: int, deployments: JsonObject) -> list[str]:
    """Return the command of flows.watch, for the settings of the scheduled nights."""
    nights = [one["parameters"] for one in deployments["deployments"] if one["schedules"] and "config" in one["parameters"]]
    configs = [night["config"] for night in nights]
    return [sys.executable, "-m", "flows.watch", str(port), *configs, "--", *nights[0]["overrides"]]


def _ledger(home: Home) -> str:
    """Return the ledger's place for processes that know the registry by its server's address, which names no database."""
    open_ledger(home, own_registry(home))
    return ledger_place(home, own_registry(home))


def choose_port(wanted: int | None, default: int) -> int:
    """Return the wanted port; without one the default port, or any free one if that is taken.

    Raises:
        BusyError: the wanted port is taken.
    """
    if wanted is None:
        return default if is_free(default) else free_port()
    if not is_free(wanted):
        raise BusyError(f"port {wanted} is in use", fix="choose another, or leave the option out to take any free one")
    return wanted


def project_directory() -> Path:
    """Return the directory that holds the package `flows`, to which the entrypoints in prefect.yaml are relative.

    Raises:
        NotFoundError: clawpipe was installed without its flows.
    """
    spec = importlib.util.find_spec("flows")
    if spec is None or spec.origin is None:
        raise NotFoundError("the package `flows` is not installed", fix="install clawpipe from its wheel or from a clone")
    return Path(spec.origin).parent.parent


def _queues(deployments: JsonObject) -> list[str]:
    """Return the work queues that the deployments name, one run of each of which starts at a time."""
    return sorted({name for one in deployments["deployments"] if (name := _queue(one))})


def _queue(deployment: JsonObject) -> str | None:
    return deployment["work_pool"].get("work_queue_name")


def _finish(command: list[str], project: Path, env: dict[str, str]) -> None:
    """Run a command to its end in the project's directory; raise if it fails."""
    done = subprocess.run(command, cwd=project, env={**os.environ, **env}, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if done.returncode:
        raise ConfigError(f"`{' '.join(command[2:])}` ended with code {done.returncode}:\n{done.stdout}{done.stderr}", str(project))
