"""The gateway's process: start, serve, and stop on request without losing what was answered."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import uvicorn
from starlette.types import Receive, Scope, Send

from clawpipe.core.services.connections import AT_ONCE, LOG_LINES, BoundedServer, FewLines, connections_beside
from clawpipe.core.services.web import THIS_MACHINE, SameOrigin
from clawpipe.core.store.home import Home
from clawpipe.data.capture.segments import recover, segments_dir
from clawpipe.data.capture.settings import session_settings
from clawpipe.data.forgotten.tombstones import read_tombstones
from clawpipe.data.privacy.rules import rules_of
from clawpipe.serve.gateway.adapters import Following
from clawpipe.serve.gateway.answering import WhenFull
from clawpipe.serve.gateway.app import Gateway
from clawpipe.serve.gateway.clients import Clients
from clawpipe.serve.gateway.metrics import Metrics
from clawpipe.serve.gateway.recorder import Recorder
from clawpipe.serve.gateway.upstreams import Upstreams
from clawpipe.serve.serving.access import is_loopback

log = logging.getLogger("clawpipe.gateway")
_STOP_SECONDS = 20  # for running answers


def serve(
    home: Home,
    upstreams: Upstreams,
    clients: Clients,
    listener: socket.socket,
    when_full: WhenFull = "refuse",
    following: Following | None = None,
    per_user: bool = False,
) -> None:
    """Serve until SIGTERM or Ctrl-C.

    Args:
        home: where segments and keys are.
        upstreams: the engines.
        clients: who may ask.
        listener: a bound socket.
        when_full, following, per_user: see `clawpipe.serve.gateway.chat.Chat`.

    Raises:
        ConfigError: the home's `privacy.yaml` or `sessions.yaml` is wrong, or the process may not open as many files as there may
            be requests.
        DataError: the list of what was forgotten is damaged.
    """
    rules_of(home.root)
    session_settings(home.root)
    read_tombstones(home)
    hosts = THIS_MACHINE if is_loopback(listener.getsockname()[0]) else None
    app = SameOrigin(_Whole(home, upstreams, clients, when_full, following, per_user), hosts)
    settings = uvicorn.Config(
        app,
        http=connections_beside(clients.at_once),
        ws="none",
        lifespan="on",
        server_header=False,
        backlog=AT_ONCE,
        access_log=False,  # a path may hold a session's id
        log_level="warning",
        timeout_graceful_shutdown=_STOP_SECONDS,
    )
    _log_little()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # uvicorn re-raises the signal: a stop is no crash
    with contextlib.suppress(KeyboardInterrupt):
        BoundedServer(settings).run([listener])


class _Whole:
    """The application with what lives as long as it does: the recorder's thread and the connections to the engine."""

    def __init__(
        self,
        home: Home,
        upstreams: Upstreams,
        clients: Clients,
        when_full: WhenFull,
        following: Following | None,
        per_user: bool,
    ) -> None:
        self._home, self._upstreams, self._clients, self._following = home, upstreams, clients, following
        self._when_full: WhenFull = when_full
        self._per_user = per_user
        self._gateway: Gateway | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await _lifespan(self._running(), receive, send)
        elif self._gateway:
            await self._gateway(scope, receive, send)

    @asynccontextmanager
    async def _running(self) -> AsyncIterator[None]:
        directory, metrics = segments_dir(self._home), Metrics()
        for path, count in recover(directory).items():
            log.warning("%s: %d bytes of records that were never acknowledged are cut off", path.name, count)
        recorder = Recorder(self._home, directory, metrics.group)
        await recorder.ready()
        await self._upstreams.open()
        looking = [asyncio.create_task(self._upstreams.follow())]
        looking += [asyncio.create_task(self._following.run())] if self._following else []
        self._gateway = Gateway(
            self._upstreams,
            self._clients,
            recorder,
            metrics,
            self._when_full,
            self._following,
            self._per_user,
            session_settings(self._home.root),
        )
        try:
            yield
        finally:
            await self._gateway.chat.settle()
            for task in looking:
                task.cancel()
            await asyncio.gather(*looking, return_exceptions=True)
            await self._upstreams.close()
            await recorder.close()


async def _lifespan(running: contextlib.AbstractAsyncContextManager[None], receive: Receive, send: Send) -> None:
    await receive()
    async with running:
        await send({"type": "lifespan.startup.complete"})
        await receive()
    await send({"type": "lifespan.shutdown.complete"})


def _log_little() -> None:
    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s", level=logging.WARNING)
    log.setLevel(logging.INFO)
    few = FewLines(LOG_LINES)
    for name in ("uvicorn.error", log.name):
        logging.getLogger(name).addFilter(few)
