"""Connections of clawpipe's servers end in time, and never take all that a process may open."""

from __future__ import annotations

import asyncio
import resource
import signal
import socket
import subprocess
import sys
import threading

import pytest
import uvicorn

from clawpipe.core.services import connections
from clawpipe.core.services.connections import AT_ONCE, MOST, BoundedServer, Connection, connections_beside
from clawpipe.errors import ConfigError
from clawpipe.serve.serving.access import listen

STOPPED_TWICE = """
import asyncio, contextlib, socket, sys, uvicorn
from clawpipe.core.services.connections import BoundedServer

async def app(scope, receive, send):
    await receive()
    print("up", flush=True)
    await send({"type": "lifespan.startup.complete"})
    await receive()
    print("stops", flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    await send({"type": "lifespan.shutdown.complete"})

listener = socket.create_server(("127.0.0.1", 0))
with contextlib.suppress(KeyboardInterrupt):
    BoundedServer(uvicorn.Config(app, lifespan="on", log_level="warning")).run([listener])
"""


def test_a_second_interrupt_is_no_traceback():
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    with subprocess.Popen([sys.executable, "-c", STOPPED_TWICE], text=True, **pipes) as server:
        for told in ("up", "stops"):
            assert server.stdout.readline() == f"{told}\n"
            server.send_signal(signal.SIGINT)
        assert server.communicate("\n", timeout=120)[1] == ""
    assert server.returncode == 0


def test_a_client_that_reads_nothing_is_cut_off(monkeypatch):
    monkeypatch.setattr(connections, "READ_SECONDS", 0.2)
    gone = threading.Event()

    async def endless(scope, receive, send):
        if scope["type"] == "http":
            await send({"type": "http.response.start", "status": 200, "headers": []})
            leaving = asyncio.ensure_future(receive_until_gone(receive))
            while not leaving.done():
                await send({"type": "http.response.body", "body": b"x" * 65536, "more_body": True})
                await asyncio.sleep(0)
            gone.set()

    async def receive_until_gone(receive):
        while (await receive())["type"] != "http.disconnect":
            pass

    listener = listen("127.0.0.1", 0)
    settings = uvicorn.Config(endless, http=Connection, ws="none", lifespan="off", log_level="error", backlog=AT_ONCE)
    server = BoundedServer(settings)
    thread = threading.Thread(target=server.run, args=([listener],))
    thread.start()
    try:
        with socket.create_connection(listener.getsockname(), timeout=30) as client:
            client.sendall(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            assert gone.wait(30)
    finally:
        server.should_exit = True
        thread.join()


@pytest.fixture
def limit(monkeypatch):
    """limit(soft, hard): limits of open files; what they are set to."""
    told = []

    def set_limits(soft, hard):
        monkeypatch.setattr(resource, "getrlimit", lambda _: (soft, hard))
        monkeypatch.setattr(resource, "setrlimit", lambda _, limits: told.append(limits))
        return told

    return set_limits


def test_there_are_connections_to_say_that_no_place_is_free(limit):
    told = limit(1024, 1 << 20)
    assert connections_beside(256).most == 1024
    assert told == [(1024 + 512 + 64, 1 << 20)]
    assert connections_beside(4).most == 4 * MOST
    limit(1024, 1024)
    assert connections_beside(256).most == 1024 - 256 - 64
    limit(1024, resource.RLIM_INFINITY)
    assert connections_beside(1000).most == 4000


def test_more_answers_than_files_are_refused(limit):
    limit(256, 512)
    with pytest.raises(ConfigError, match="open files"):
        connections_beside(256)
