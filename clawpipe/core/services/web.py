"""Protection of clawpipe's web servers against requests from other sites' pages and from users without the secret.

A page of any site that the user visits can make the browser send requests to this machine. They carry the site as Origin, or
as Host if the site's name was made to resolve to this machine (DNS rebinding).
"""

from __future__ import annotations

import base64
import hmac
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse, PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

THIS_MACHINE = frozenset({"127.0.0.1", "localhost", "::1"})
_POLICY = "; ".join(  # https://www.w3.org/TR/CSP3/
    (
        "default-src 'self'",
        "script-src 'self' 'unsafe-eval'",  # Prefect's graph of a run builds its shaders with eval
        "style-src 'self' 'unsafe-inline'",
        "img-src 'self' data: blob:",
        "font-src 'self' data:",
        "worker-src 'self' blob:",
        "frame-ancestors 'self'",
    )
)


class SameOrigin:
    """Refuses requests from other sites' pages: a foreign Host, or an Origin other than the server's. A content security policy
    keeps the server's pages from sending requests anywhere else, such as usage statistics.

    Args:
        hosts: names and addresses under which the server may be reached; None allows all.
    """

    def __init__(self, app: ASGIApp, hosts: frozenset[str] | None = THIS_MACHINE) -> None:
        self._app, self._hosts = app, hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] in ("http", "websocket") and (refusal := self._refusal(Headers(scope=scope))):
            await _refused(refusal)(scope, receive, send)
        else:
            await self._app(scope, receive, _with_policy(send))

    def _refusal(self, headers: Headers) -> str | None:
        host, origin = headers.get("host", ""), headers.get("origin")
        if self._hosts is not None and _name(f"//{host}") not in self._hosts:
            return "this server does not answer to this host name"
        if origin is not None and origin.partition("://")[2].lower() != host.lower():
            return "requests from pages of other sites are refused"
        return None


class Locked:
    """Asks for `user:password` by basic authentication, which browsers and MLflow's client support, except on `open_path`."""

    def __init__(self, app: ASGIApp, secret: str, open_path: str) -> None:
        self._app, self._expected, self._open = app, base64.b64encode(secret.encode()), open_path

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan" or scope["path"] == self._open or self._is_authorised(Headers(scope=scope)):
            await self._app(scope, receive, send)
        else:
            refusal = PlainTextResponse("wrong user or password", 401, {"www-authenticate": 'Basic realm="clawpipe"'})
            await refusal(scope, receive, send)

    def _is_authorised(self, headers: Headers) -> bool:
        scheme, _, given = headers.get("authorization", "").partition(" ")
        return scheme.lower() == "basic" and hmac.compare_digest(given.strip().encode("latin-1"), self._expected)


def _refused(message: str) -> JSONResponse:
    """Return a refusal in the form of OpenAI's errors, which the clients of the servers here read."""
    error = {"message": message, "type": "invalid_request_error", "param": None, "code": "foreign_origin"}
    return JSONResponse({"error": error}, 403)


def _with_policy(send: Send) -> Send:
    async def sent(message: Message) -> None:
        if message["type"] == "http.response.start":
            MutableHeaders(scope=message)["content-security-policy"] = _POLICY
        await send(message)

    return sent


def _name(url: str) -> str | None:
    try:
        return urlsplit(url).hostname
    except ValueError:
        return None
