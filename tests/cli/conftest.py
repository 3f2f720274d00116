"""The services of a home, as `clawpipe up` starts them."""

from __future__ import annotations

import datetime
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from clawpipe.core.services.prefect_server import announced_url
from clawpipe.core.services.secret import home_secret
from clawpipe.core.store.home import Home
from clawpipe.core.system.ports import free_port
from tests.waiting import answered


@dataclass(frozen=True)
class Up:
    """`clawpipe up` under way."""

    home: Home
    process: subprocess.Popen[str]
    said: str

    @property
    def prefect(self) -> str:
        """Address of Prefect's API."""
        deadline = time.monotonic() + 120
        while (url := announced_url(self.home)) is None:  # a busy machine: it answers late
            assert self.process.poll() is None, self.said
            assert time.monotonic() < deadline, self.said
            time.sleep(0.5)
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
        with httpx.Client(auth=(user, password), timeout=120) as client:
            if method != "GET" and url.startswith(self.prefect):
                token = answered(client, "GET", f"{self.prefect}/csrf-token", params={"client": "test"})["token"]
                client.headers.update({"Prefect-Csrf-Client": "test", "Prefect-Csrf-Token": token})
            return answered(client, method, url, **more)

    def deployed(self, name: str) -> dict[str, Any]:
        """A deployment as the server has it."""
        return next(one for one in self.ask(f"{self.prefect}/deployments/filter", "POST", json={}) if one["name"] == name)

    def schedule(self, name: str, schedule: dict[str, Any]) -> None:
        """Give a deployment another schedule in place of its own."""
        mine = self.deployed(name)
        for old in mine["schedules"]:
            self.ask(f"{self.prefect}/deployments/{mine['id']}/schedules/{old['id']}", "DELETE")
        self.ask(f"{self.prefect}/deployments/{mine['id']}/schedules", "POST", json=[{"schedule": schedule, "active": True}])

    def runs(self, name: str) -> list[dict[str, Any]]:
        """The runs of a deployment that were due by now, the oldest first."""
        query = {"deployments": {"name": {"any_": [name]}}, "sort": "EXPECTED_START_TIME_ASC"}
        now = datetime.datetime.now(datetime.UTC).isoformat()
        found = self.ask(f"{self.prefect}/flow_runs/filter", "POST", json=query)
        return [one for one in found if one["expected_start_time"] < now]

    def pause(self, deployment: str, *, paused: bool) -> None:
        self.ask(f"{self.prefect}/deployments/{deployment}/{'pause' if paused else 'resume'}_deployment", "POST")


@contextmanager
def services(home: Home, *words: str) -> Iterator[Up]:
    """`clawpipe up` on a home for the length of the block."""
    ports = [f"--{name}-port={free_port()}" for name in ("prefect", "mlflow", "metrics")]
    command = [sys.executable, "-m", "clawpipe.cli.main", "up", *ports, *words]
    env, pipe = os.environ | {"CLAWPIPE_HOME": str(home.root)}, subprocess.PIPE
    with subprocess.Popen(command, env=env, stdout=pipe, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout is not None
        said = ""
        for line in process.stdout:
            said += line
            if "Ctrl-C" in line:
                break
        try:
            yield Up(home, process, said)
        finally:
            process.kill()


@pytest.fixture(scope="session")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    """The services of a home, which all tests share."""
    home = Home(tmp_path_factory.mktemp("up") / "home")
    night = home.root.parent / "night.yaml"
    night.write_text("trajectories: [new]\nrollouts: null\nenvironment: {name: conversations}\ntrain: {method: sft}\n")
    with services(home, "--config", str(night), "-o", "seed=3") as running:
        yield running
