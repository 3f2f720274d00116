"""What the servers that clawpipe starts run: Prefect's and MLflow's own applications, for their own pages and the home's secret."""

from __future__ import annotations

import os

from starlette.types import ASGIApp

from clawpipe.services.web import Locked, SameOrigin


def prefect() -> ASGIApp:
    """Prefect's API and pages. It asks for PREFECT_SERVER_API_AUTH_STRING itself, but answers to any host."""
    from prefect.server.api.server import create_app

    return SameOrigin(create_app(final=True))


def mlflow() -> ASGIApp:
    """MLflow's tracking server, which by itself asks nobody for anything, and trusts every page of this machine's other servers.

    MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD are what it asks for, under the names that its clients know.
    """
    from mlflow.server.fastapi_app import app

    user, password = os.environ["MLFLOW_TRACKING_USERNAME"], os.environ["MLFLOW_TRACKING_PASSWORD"]
    return SameOrigin(Locked(app, f"{user}:{password}", open_path="/health"))
