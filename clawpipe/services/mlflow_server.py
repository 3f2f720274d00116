"""An MLflow server over the home's own database, for looking at runs and models in a browser."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from clawpipe.services.ports import LOOPBACK
from clawpipe.services.prefect_server import logs
from clawpipe.services.secret import home_secret
from clawpipe.services.service import Service, running
from clawpipe.store.home import Home

START_SECONDS = 180.0


@contextmanager
def server(home: Home, port: int) -> Iterator[tuple[Service, str]]:
    """A healthy MLflow server on a loopback port, which asks for the home's secret.

    The database must exist: a migration killed half-way leaves one that never opens.
    Artifacts are not proxied: experiments keep plain paths below the home, so that a night with the database alone and one
    that goes through the server read each other's.

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
    with running("MLflow server", command, logs(home) / "mlflow-server.log", env | credentials(home)) as service:
        service.wait_healthy(f"{url}/health", START_SECONDS)
        yield service, url


def credentials(home: Home) -> dict[str, str]:
    """What its clients must have in their environment."""
    user, _, password = home_secret(home).partition(":")
    return {"MLFLOW_TRACKING_USERNAME": user, "MLFLOW_TRACKING_PASSWORD": password}
