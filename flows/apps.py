"""ASGI applications of the servers that clawpipe starts: Prefect's and MLflow's, behind the home's secret and an origin check."""

from __future__ import annotations

import os

from starlette.types import ASGIApp

from clawpipe.quick_imports import quick_imports
from clawpipe.services.web import Locked, SameOrigin


def prefect() -> ASGIApp:
    """Return Prefect's API and pages. Prefect checks PREFECT_SERVER_API_AUTH_STRING, but answers requests for any host."""
    with quick_imports():
        from prefect.server.api.server import create_app

        return SameOrigin(create_app())


def mlflow() -> ASGIApp:
    """Return MLflow's tracking server. MLflow alone checks no password, and trusts the pages of other servers on this machine.

    MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD hold the user and the password; MLflow's clients read the same names.
    """
    with quick_imports():
        from mlflow.server.fastapi_app import app

    user, password = os.environ["MLFLOW_TRACKING_USERNAME"], os.environ["MLFLOW_TRACKING_PASSWORD"]
    return SameOrigin(Locked(app, f"{user}:{password}", open_path="/health"))
