"""A server under pressure: long texts, requests that never begin or end, and requests without a key."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

import httpx
import pytest
from transformers import AutoModelForCausalLM

from clawpipe.core.services import connections
from clawpipe.serve.serving import answering

KEY = {"authorization": "Bearer sk-a-test-key"}
CONTEXT = 600_000  # tokens, of which each is a byte
SERVE = """
import resource, sys, torch
resource.setrlimit(resource.RLIMIT_NOFILE, (512, 512))  # as many for each connection as a usual process has for 512 more
from clawpipe.model.policy.spec import PolicySpec
from clawpipe.serve.serving.access import listen
from clawpipe.serve.serving.found import Served
from clawpipe.serve.serving.policy import ServedPolicy
from clawpipe.serve.serving.server import serve
from clawpipe.serve.serving.live import Live, loader
from clawpipe.serve.serving.versions import Versions
torch.set_num_threads(1)
spec = PolicySpec(base=sys.argv[1], adapter=None, dtype="float32", tool_call_format="pythonic", policy_version="f" * 16)
listener = listen("127.0.0.1", 0)
print(listener.getsockname()[1], flush=True)
serve(Versions(Live(ServedPolicy(Served("agent", "3", "d" * 64, spec), "cpu"))), "sk-a-test-key", listener)
"""


class Pressed(NamedTuple):
    url: str
    port: int
    log: Path


@pytest.fixture(scope="module")
def server(base, tokenizer, tmp_path_factory) -> Iterator[Pressed]:
    """The random model with a long context, in a process that may open few files."""
    directory = tmp_path_factory.mktemp("long")
    model = AutoModelForCausalLM.from_pretrained(base.path)
    model.config.max_position_embeddings = CONTEXT
    model.save_pretrained(directory)
    tokenizer.save_pretrained(directory)
    log = directory / "log"
    command = [sys.executable, "-c", SERVE, str(directory)]
    with log.open("wb") as sink, subprocess.Popen(command, stdout=subprocess.PIPE, stderr=sink, text=True) as process:
        assert process.stdout is not None
        port = int(process.stdout.readline())
        yield Pressed(f"http://127.0.0.1:{port}", port, log)
        process.terminate()


def ask(server: Pressed, text: str, tokens: int = 1) -> httpx.Response:
    body = {"model": "agent", "messages": [{"role": "user", "content": text}], "max_completion_tokens": tokens}
    return httpx.post(f"{server.url}/v1/chat/completions", json=body, headers=KEY, timeout=120)


@contextmanager
def watched(server: Pressed) -> Iterator[list[float]]:
    """Return the seconds of health checks made all the while."""
    seconds: list[float] = []
    over = threading.Event()

    def watch() -> None:
        with httpx.Client(timeout=120) as client:
            while not over.is_set():
                begun = time.monotonic()
                assert client.get(f"{server.url}/healthz").status_code == 200
                seconds.append(time.monotonic() - begun)

    with ThreadPoolExecutor(1) as threads:
        watching = threads.submit(watch)
        try:
            yield seconds
        finally:
            over.set()
            watching.result()


@pytest.mark.slow
@pytest.mark.parametrize("size", [1_600_000, 500_000], ids=["beyond any context", "to be counted"])
def test_texts_that_do_not_fit_keep_nobody_waiting(server: Pressed, size: int):
    assert httpx.get(f"{server.url}/healthz", timeout=120).status_code == 200  # it has started
    with watched(server) as seconds, ThreadPoolExecutor(12) as clients:
        refused = list(clients.map(lambda _: ask(server, "word and " * (size // 9), CONTEXT), range(12)))
    assert {answer.json()["error"]["code"] for answer in refused} == {"context_length_exceeded"}
    assert max(seconds) < 5  # where each text held the process, 12 of them took 10 to 20 times as long
    assert ask(server, "Hello").status_code == 200


@pytest.mark.slow
def test_silent_connections_block_no_client_and_fill_no_log(server: Pressed):
    httpx.get(f"{server.url}/healthz", timeout=120)
    lines = len(server.log.read_text().splitlines())
    with ExitStack() as silent:
        for number in range(700):
            connection = silent.enter_context(socket.create_connection(("127.0.0.1", server.port)))
            if number % 2:
                connection.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1\r\nx-slow: ")
        assert ask(server, "Hello").status_code == 200
    with httpx.Client() as client:
        for _ in range(700):
            assert client.get(f"{server.url}/v1/models").status_code == 401
    assert ask(server, "Hello").status_code == 200
    log = server.log.read_text()
    assert "Traceback" not in log
    assert len(log.splitlines()) - lines <= 2 * 300 + 2  # at most two minutes' worth


def test_a_request_that_never_begins_and_one_that_never_ends(random_server, monkeypatch):
    monkeypatch.setattr(connections, "HEAD_SECONDS", 0.5)
    monkeypatch.setattr(answering, "BODY_SECONDS", 0.5)
    address = ("127.0.0.1", int(random_server.url.rpartition(":")[2]))
    for head in (b"", b"GET /healthz HTTP/1.1\r\nhost:"):
        with socket.create_connection(address, timeout=30) as connection:
            connection.sendall(head)
            assert ended(connection) == b""
    head = b"POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 9\r\n"
    with socket.create_connection(address, timeout=30) as connection:
        connection.sendall(head + b"authorization: Bearer sk-a-test-key\r\n\r\n{")
        assert ended(connection).startswith(b"HTTP/1.1 408 ")
    with socket.create_connection(address, timeout=30) as connection:
        connection.sendall(head + b"\r\n{")  # nobody waits for the body of a client without a key
        assert ended(connection).startswith(b"HTTP/1.1 401 ")


def ended(connection: socket.socket) -> bytes:
    """Read from the server until it closes the connection."""
    said = b""
    try:
        while part := connection.recv(65536):
            said += part
    except ConnectionResetError:
        pass
    return said
