"""Fixtures that several rooms share."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from clawpipe.services.ports import free_port
from clawpipe.services.prefect_server import Api, environment, server
from clawpipe.store.home import Home

_SCRATCH = pytest.StashKey[tempfile.TemporaryDirectory]()


def pytest_configure(config: pytest.Config) -> None:
    """Nothing of the user's is read or written; Prefect makes its home directory as soon as it is imported."""
    for name in ("CLAWPIPE_HOME", "MLFLOW_TRACKING_URI", "PREFECT_API_URL", "PREFECT_PROFILE"):
        os.environ.pop(name, None)
    config.stash[_SCRATCH] = tempfile.TemporaryDirectory()
    os.environ["PREFECT_HOME"] = config.stash[_SCRATCH].name


def pytest_unconfigure(config: pytest.Config) -> None:
    config.stash[_SCRATCH].cleanup()


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    """A home of the test's own; CLAWPIPE_HOME names it."""
    monkeypatch.setenv("CLAWPIPE_HOME", str(tmp_path / "home"))
    return Home.from_env()


@pytest.fixture(scope="session")
def prefect_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a real Prefect server that all tests share."""
    with server(Home(tmp_path_factory.mktemp("prefect-server")), free_port()) as (_, url):
        yield url
        _drain()


@pytest.fixture
def prefect_api(prefect_server: str, home: Home, monkeypatch: pytest.MonkeyPatch) -> Iterator[Api]:
    """The shared server as the configured API, for this process and its children; records go to the test's home."""
    from prefect.settings import temporary_settings

    api = Api(prefect_server, private=False, configured=True)
    for name, value in environment(home, api).items():
        monkeypatch.setenv(name, value)
    with temporary_settings(
        {"PREFECT_API_URL": api.url, "PREFECT_LOCAL_STORAGE_PATH": str(home.steps), "PREFECT_SERVER_EPHEMERAL_ENABLED": False}
    ):
        yield api


def _drain() -> None:
    """Send what Prefect's background threads still hold: at interpreter exit the server is gone."""
    from flows.bootstrap import drain

    drain()
