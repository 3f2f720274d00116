"""Run the MCP server: over this process's own pipes, or over HTTP for clients that know the home's secret."""

from __future__ import annotations

import contextlib
import hmac
import logging
import os
import signal
import socket
import sys

import anyio
import uvicorn
from mcp.server.stdio import stdio_server
from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from clawpipe import __version__
from clawpipe.core.services.secret import home_secret
from clawpipe.core.services.web import THIS_MACHINE, SameOrigin
from clawpipe.start.mcp.desk import Desk
from clawpipe.start.mcp.protocol import server_of
from clawpipe.start.mcp.tools import INSTRUCTIONS, tools_of

PATH = "/mcp"


def serve_pipes(desk: Desk) -> None:
    """Answer a client on stdin and stdout until it closes stdin. Log lines go to stderr."""
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING)
    anyio.run(_over_pipes, desk)


async def _over_pipes(desk: Desk) -> None:
    server = server_of(tools_of(desk), __version__, INSTRUCTIONS)
    own = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what an environment's file prints is no message to the client
    async with stdio_server(stdout=anyio.wrap_file(own)) as (read, write):
        await server.run(read, write, server.create_initialization_options())


def serve_http(desk: Desk, listener: socket.socket) -> None:
    """Answer clients on a bound socket until SIGINT or SIGTERM."""
    settings = uvicorn.Config(http_app(desk), ws="none", lifespan="on", server_header=False, access_log=False, log_level="warning")
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # uvicorn re-raises the signal: a stop is no crash
    with contextlib.suppress(KeyboardInterrupt):
        uvicorn.Server(settings).run([listener])


def http_app(desk: Desk) -> ASGIApp:
    """Return the server for HTTP (streamable HTTP at /mcp), for clients that send the home's secret as a bearer token."""
    app = server_of(tools_of(desk), __version__, INSTRUCTIONS).streamable_http_app(streamable_http_path=PATH)
    return SameOrigin(_Bearer(app, home_secret(desk.home)), THIS_MACHINE)


class _Bearer:
    """Asks for the secret, with or without its user's name, as a bearer token."""

    def __init__(self, app: ASGIApp, secret: str) -> None:
        self._app, self._known = app, (secret.encode(), secret.partition(":")[2].encode())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan" or self._is_known(Headers(scope=scope)):
            await self._app(scope, receive, send)
        else:
            error = {"error": "this server asks for the secret of its home, as a bearer token"}
            await JSONResponse(error, 401, {"www-authenticate": "Bearer"})(scope, receive, send)

    def _is_known(self, headers: Headers) -> bool:
        scheme, _, given = headers.get("authorization", "").partition(" ")
        matches = [hmac.compare_digest(given.strip().encode("latin-1"), known) for known in self._known]
        return scheme.lower() == "bearer" and any(matches)
