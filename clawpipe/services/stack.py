"""The long-lived services of a home: Prefect server, MLflow server, a worker, and the deployments of prefect.yaml."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from clawpipe.errors import BusyError, ConfigError, NotFoundError
from clawpipe.services import mlflow_server, prefect_server
from clawpipe.services.ports import free_port, is_free
from clawpipe.services.prefect_server import Api, environment, logs
from clawpipe.services.service import Service, running
from clawpipe.store.home import Home
from clawpipe.store.locks import exclusive

WORK_POOL = "clawpipe"
_LOOK_SECONDS = 0.5


@dataclass(frozen=True)
class Stack:
    """What runs, and where."""

    api_url: str
    mlflow_url: str
    services: tuple[Service, ...]

    def watch(self) -> None:
        """Return never; only an interrupt or the end of a service gets out.

        Raises:
            BusyError: a service ended; the message shows its log's end.
        """
        while True:
            for service in self.services:
                if service.ended() is not None:
                    what = f"{service.name} ended with code {service.ended()}; the end of its log:\n{service.tail()}"
                    raise BusyError(what, str(service.log), "start again with `clawpipe up`")
            time.sleep(_LOOK_SECONDS)


@contextmanager
def stack(home: Home, prefect_port: int, mlflow_port: int, say: Callable[[str], None]) -> Iterator[Stack]:
    """Run everything for the length of the block, prepared and deployed.

    Raises:
        BusyError: `clawpipe up` runs on this home already, or a service does not start.
        ConfigError: prefect.yaml does not deploy.
    """
    project = project_directory()
    with ExitStack() as open_, exclusive(home.locks / "up.lock", "`clawpipe up` on this home"):
        say("starting the Prefect server")
        prefect, url = open_.enter_context(prefect_server.server(home, prefect_port))
        env = environment(home, Api(url, private=True))
        _finish([sys.executable, "-m", "flows.bootstrap"], project, env)
        say("starting the MLflow server")
        mlflow, mlflow_url = open_.enter_context(mlflow_server.server(home, mlflow_port))
        say("deploying prefect.yaml")
        env |= {"MLFLOW_TRACKING_URI": mlflow_url, **mlflow_server.credentials(home)}
        _finish([sys.executable, "-m", "prefect", "deploy", "--all", "--no-prompt"], project, env)
        command = [sys.executable, "-m", "prefect", "worker", "start", "--pool", WORK_POOL, "--type", "process"]
        worker = open_.enter_context(running("worker", command, logs(home) / "worker.log", env))
        prefect_server.announce(home, url)
        yield Stack(url, mlflow_url, (prefect, mlflow, worker))


def choose_port(wanted: int | None, usual: int) -> int:
    """The wanted port; without a wish the usual one, or any where that is taken.

    Raises:
        BusyError: the wanted port is taken.
    """
    if wanted is None:
        return usual if is_free(usual) else free_port()
    if not is_free(wanted):
        raise BusyError(f"port {wanted} is in use", fix="choose another, or leave the option away to take any free one")
    return wanted


def project_directory() -> Path:
    """The directory that holds prefect.yaml and the flows.

    Raises:
        NotFoundError: clawpipe is installed without its project.
    """
    spec = importlib.util.find_spec("flows")
    project = Path(spec.origin).parent.parent if spec and spec.origin else Path.cwd()
    if not (project / "prefect.yaml").is_file():
        raise NotFoundError("no prefect.yaml beside the flows", str(project), "install from a clone: pip install -e .")
    return project


def _finish(command: list[str], project: Path, env: dict[str, str]) -> None:
    """Run a command to its end in the project's directory."""
    done = subprocess.run(command, cwd=project, env={**os.environ, **env}, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if done.returncode:
        raise ConfigError(f"`{' '.join(command[2:])}` ended with code {done.returncode}:\n{done.stdout}{done.stderr}", str(project))
