"""The services of a home, as `clawpipe up` starts them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from clawpipe.ports import free_port
from clawpipe.services.prefect_server import announced_url
from clawpipe.services.secret import home_secret
from clawpipe.store.home import Home


@dataclass(frozen=True)
class Up:
    """`clawpipe up` under way."""

    home: Home
    process: subprocess.Popen[str]
    said: str

    @property
    def prefect(self) -> str:
        """Address of Prefect's API."""
        url = announced_url(self.home)
        assert url is not None, self.said
        return url

    @property
    def mlflow(self) -> str:
        return next(line.split()[1] for line in self.said.splitlines() if line.startswith("MLflow"))

    @property
    def secret(self) -> str:
        return home_secret(self.home)

    def ask(self, url: str, method: str = "GET", **more: Any) -> Any:
        """What a server answers to somebody who knows the secret."""
        user, _, password = self.secret.partition(":")
        with httpx.Client(auth=(user, password), timeout=30) as client:
            if method != "GET" and url.startswith(self.prefect):
                token = client.get(f"{self.prefect}/csrf-token", params={"client": "test"}).json()["token"]
                client.headers.update({"Prefect-Csrf-Client": "test", "Prefect-Csrf-Token": token})
            return client.request(method, url, **more).raise_for_status().json()

    def pause(self, deployment: str, *, paused: bool) -> None:
        self.ask(f"{self.prefect}/deployments/{deployment}/{'pause' if paused else 'resume'}_deployment", "POST")


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    """The services of a home, which the tests of a file share."""
    home = Home(tmp_path_factory.mktemp("up") / "home")
    night = home.root.parent / "night.yaml"
    night.write_text("trajectories: [new]\nrollouts: null\nenvironment: {name: conversations}\ntrain: {method: sft}\n")
    ports = [f"--{name}-port={free_port()}" for name in ("prefect", "mlflow", "metrics")]
    command = [sys.executable, "-m", "clawpipe.cli.main", "up", *ports, "--config", str(night), "-o", "seed=3"]
    env, pipe = os.environ | {"CLAWPIPE_HOME": str(home.root)}, subprocess.PIPE
    with subprocess.Popen(command, env=env, stdout=pipe, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout is not None
        said = ""
        for line in process.stdout:
            said += line
            if "Ctrl-C" in line:
                break
        yield Up(home, process, said)
        process.kill()
