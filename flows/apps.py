"""ASGI applications of the servers that clawpipe starts: Prefect's and MLflow's, behind the home's secret and an origin check."""

from __future__ import annotations

import os

from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, PlainTextResponse, Response
from starlette.routing import Route, Router
from starlette.types import ASGIApp, Receive, Scope, Send

from clawpipe.core.services.sign_in import SignIn, keep_secret, lead_on
from clawpipe.core.services.web import THIS_MACHINE, Locked, SameOrigin
from clawpipe.core.store.home import Home
from clawpipe.core.system.quick_imports import quick_imports
from clawpipe.errors import ClawpipeError
from clawpipe.record.nights.files import REPORT, run_dir

SERVER_NAMES = (
    "CLAWPIPE_SERVER_NAMES"  # further names of the servers, with commas between: those by which a cluster's pods find them
)


def _hosts() -> frozenset[str]:
    return THIS_MACHINE | {name.strip() for name in os.environ.get(SERVER_NAMES, "").split(",") if name.strip()}


def prefect() -> ASGIApp:
    """Return Prefect's API and pages. Prefect checks PREFECT_SERVER_API_AUTH_STRING, but answers requests for any host."""
    with quick_imports():
        from prefect.server.api.server import create_app

        return SameOrigin(SignIn(create_app(), keep_secret), _hosts())


def mlflow() -> ASGIApp:
    """Return MLflow's tracking server, and beside it the page over all nights.

    MLflow alone checks no password, and trusts the pages of other servers on this machine.

    MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD hold the user and the password; MLflow's clients read the same names.
    """
    with quick_imports():
        from mlflow.server.fastapi_app import app

    user, password = os.environ["MLFLOW_TRACKING_USERNAME"], os.environ["MLFLOW_TRACKING_PASSWORD"]
    pages = SignIn(NightPages(app, Home.from_env()), lead_on)
    return SameOrigin(Locked(pages, f"{user}:{password}", open_path="/health"), _hosts())


class NightPages:
    """Adds to an application the page over all nights of a home, `/nights/`, made at each request, and the nights' reports."""

    def __init__(self, app: ASGIApp, home: Home) -> None:
        self._app, self._home = app, home
        routes = [Route("/nights/", self._all), Route("/nights/runs/{night}/report.html", self._one)]
        self._pages = Router(routes, default=app)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await (self._app if scope["type"] == "lifespan" else self._pages)(scope, receive, send)

    def _all(self, request: Request) -> Response:
        from clawpipe.record.reporting.trend import past_nights, render

        return HTMLResponse(render(past_nights(self._home)))

    def _one(self, request: Request) -> Response:
        try:
            path = run_dir(self._home, request.path_params["night"]) / REPORT
        except ClawpipeError as error:
            return PlainTextResponse(str(error), 404)
        return FileResponse(path, media_type="text/html") if path.is_file() else PlainTextResponse("this night has no report", 404)
