"""The server process: it starts, serves, and stops when it is told to."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
from typing import Any

import uvicorn

from clawpipe.serving.app import create_app
from clawpipe.serving.engine_thread import EngineThread
from clawpipe.serving.policy import ServedPolicy

GRACE_SECONDS = 3.0  # for answers under way when the server is told to stop
_TEAR_OFF_SECONDS = 10  # when uvicorn ends what is left, with a traceback for each


class Server(uvicorn.Server):
    """uvicorn, which when it stops gives up answers that take longer than the grace period and tells their clients."""

    def __init__(self, policy: ServedPolicy, key: str, **options: Any) -> None:
        self._thread = EngineThread()
        app = create_app(policy, key, self._thread)
        settings = {"ws": "none", "server_header": False, "timeout_graceful_shutdown": _TEAR_OFF_SECONDS}
        super().__init__(uvicorn.Config(app, **settings | options))

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        asyncio.get_running_loop().call_later(GRACE_SECONDS, self._thread.cancel)
        await super().shutdown(sockets)


def serve(policy: ServedPolicy, key: str, listener: socket.socket) -> None:
    """Serve until SIGTERM or Ctrl-C."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # uvicorn ends with the signal that it got; a stop is no crash
    with contextlib.suppress(KeyboardInterrupt):
        Server(policy, key).run([listener])
