"""The server process: start, serve, and stop on request."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import socket
from typing import Any

import uvicorn

from clawpipe.core.basics.json_types import Options
from clawpipe.core.services.connections import AT_ONCE, LOG_LINES, BoundedServer, Connection, FewLines
from clawpipe.core.services.web import THIS_MACHINE, SameOrigin
from clawpipe.serve.serving.access import is_loopback
from clawpipe.serve.serving.app import create_app
from clawpipe.serve.serving.follow import Follower
from clawpipe.serve.serving.live import Live
from clawpipe.serve.serving.other_models import OtherModels
from clawpipe.serve.serving.own_models import OwnModels
from clawpipe.serve.serving.versions import Versions

GRACE_SECONDS = 3.0  # for running answers when the server stops
_TEAR_OFF_SECONDS = 10  # then uvicorn ends the remaining answers, with a traceback for each


class Server(BoundedServer):
    """A server that cancels answers which outlast the grace period when it stops, and tells their clients.

    Args:
        versions: what is served.
        key: the key that clients send.
        hosts: names under which it may be reached; None allows all.
        follower: changes the version in service.
        believes_clients, own_models, others: see `clawpipe.serve.serving.answering.Answering`.
        options: uvicorn's settings.
    """

    def __init__(
        self,
        versions: Versions[Live],
        key: str,
        hosts: frozenset[str] | None = THIS_MACHINE,
        follower: Follower[Live] | None = None,
        believes_clients: bool = False,
        own_models: OwnModels | None = None,
        others: OtherModels | None = None,
        **options: Any,
    ) -> None:
        self._versions = versions
        app = SameOrigin(create_app(versions, key, follower, believes_clients, own_models, others), hosts)
        settings: Options = {"http": Connection, "ws": "none", "server_header": False}
        settings |= {"backlog": AT_ONCE, "timeout_graceful_shutdown": _TEAR_OFF_SECONDS, **options}
        super().__init__(uvicorn.Config(app, **settings))
        few = FewLines(LOG_LINES)
        for name in ("uvicorn.access", "uvicorn.error"):
            logging.getLogger(name).addFilter(few)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        asyncio.get_running_loop().call_later(GRACE_SECONDS, self._versions.cancel)
        await super().shutdown(sockets)


def serve(
    versions: Versions[Live],
    key: str,
    listener: socket.socket,
    follower: Follower[Live] | None = None,
    believes_clients: bool = False,
    own_models: OwnModels | None = None,
    others: OtherModels | None = None,
) -> None:
    """Serve until SIGTERM or Ctrl-C."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # uvicorn re-raises the signal: a stop is no crash
    with contextlib.suppress(KeyboardInterrupt):
        hosts = THIS_MACHINE if is_loopback(listener.getsockname()[0]) else None
        Server(versions, key, hosts, follower, believes_clients, own_models, others).run([listener])
