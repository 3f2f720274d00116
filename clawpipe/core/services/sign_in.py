"""Addresses of the servers of `clawpipe up` that sign a user in who comes by a link of `clawpipe.core.services.pages`.

Prefect's pages keep the secret in the browser's storage of their own site; so a page of that site takes it from the link's
fragment, which is never sent. MLflow's ask by basic authentication; so the link names user and password, and the server leads on to
the address without them: Chromium refuses requests of scripts on a page whose address holds a password.
"""

from __future__ import annotations

from collections.abc import Callable

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from clawpipe.core.services.pages import SIGN_IN

_PAGE = f'<!doctype html><meta charset="utf-8"><title>clawpipe</title><script src="{SIGN_IN}script.js"></script>'
_SCRIPT = """
if (location.hash) localStorage.setItem("prefect-password", location.hash.slice(1));
location.replace("/");
"""


class SignIn:
    """Adds the addresses below `/sign-in/` to a server, answered by `answer`."""

    def __init__(self, app: ASGIApp, answer: Callable[[Request], Response]) -> None:
        self._app, self._answer = app, answer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        mine = scope["type"] == "http" and scope["path"].startswith(SIGN_IN)
        await (self._answer(Request(scope)) if mine else self._app)(scope, receive, send)


def keep_secret(request: Request) -> Response:
    """Return the page that puts the secret of a link where Prefect's pages look for it, or its script."""
    if request.url.path.endswith(".js"):
        return Response(_SCRIPT, media_type="text/javascript")
    return HTMLResponse(_PAGE)


def lead_on(request: Request) -> Response:
    """Lead a user who has named user and password on to the page that the rest of the path names."""
    return RedirectResponse(f"{request.base_url}{request.url.path.removeprefix(SIGN_IN)}", 303)
