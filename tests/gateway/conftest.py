"""A real gateway, as its users start it, before a fake of vLLM; both are processes on loopback."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from clawpipe.core.services.service import Service
from clawpipe.core.store.home import Home
from clawpipe.data.capture.records import Done, Feedback, Record, Turn
from clawpipe.data.capture.segments import read_segment, segments, segments_dir
from clawpipe.serve.serving.access import listen

KEY = "sk-a-test-key-of-the-gateway"
FAKE = Path(__file__).with_name("fake_vllm.py")
PYTHON = sys.executable


@dataclass(frozen=True)
class Fake:
    """A fake engine, and its address."""

    url: str

    def asked(self) -> list[dict[str, Any]]:
        """The requests that it was sent, without the gateway's own of one token."""
        return [one for one in httpx.get(f"{self.url}/fake/asked").json() if one["body"].get("max_tokens") != 1]

    def go_on(self) -> None:
        httpx.post(f"{self.url}/fake/go")


@dataclass(frozen=True)
class Running:
    """A gateway, its home and its address."""

    home: Home
    url: str
    service: Service

    def client(self, key: str = KEY, **headers: str) -> openai.OpenAI:
        return openai.OpenAI(base_url=f"{self.url}/v1", api_key=key, max_retries=0, timeout=60, default_headers=headers)

    def ask(self, text: str = "How many mugs", key: str = KEY, headers: dict[str, str] | None = None, **fields: Any) -> Any:
        """A chat completion of one message; all chunks of a streamed one."""
        with self.client(key) as client:
            fields = {"model": "agent", "messages": [{"role": "user", "content": text}]} | fields
            answer = client.chat.completions.create(**fields, extra_headers=headers)
            return list(answer) if fields.get("stream") else answer

    def post(self, path: str, body: Any, key: str = KEY, **more: Any) -> httpx.Response:
        return httpx.post(f"{self.url}{path}", json=body, headers={"authorization": f"Bearer {key}"} | more, timeout=30)

    def get(self, path: str, key: str = KEY) -> httpx.Response:
        return httpx.get(f"{self.url}{path}", headers={"authorization": f"Bearer {key}"}, timeout=30)

    def records(self) -> list[Record]:
        found = [one.record for path in segments(segments_dir(self.home)) for one in read_segment(path)]
        return [record for record in found if isinstance(record, Turn | Feedback | Done)]

    def turns(self) -> list[Turn]:
        return [record for record in self.records() if isinstance(record, Turn)]

    def kill(self) -> None:
        """As a power cut would: nothing is flushed, nobody says good-bye."""
        self.service.process.kill()
        self.service.process.wait()


@contextmanager
def process(command: list[str], env: dict[str, str], log: Path, fds: tuple[int, ...] = (), **more: Any) -> Iterator[Service]:
    with log.open("ab") as sink:
        child = subprocess.Popen(command, env=os.environ | env, stdout=sink, stderr=sink, pass_fds=fds, **more)
    try:
        yield Service(command[0], child, log)
    finally:
        child.kill()
        child.wait()


@contextmanager
def faked(log: Path, *flags: str) -> Iterator[Fake]:
    """A fake engine; its socket listens from the start, so that nobody need wait."""
    with listen("127.0.0.1", 0) as listener:
        os.set_inheritable(listener.fileno(), True)
        with process([sys.executable, str(FAKE), str(listener.fileno()), *flags], {}, log, (listener.fileno(),)):
            yield Fake(f"http://127.0.0.1:{listener.getsockname()[1]}")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@contextmanager
def gatewayed(home: Home, upstream: str, *words: str, key: str | None = KEY, **more: Any) -> Iterator[Running]:
    """A gateway in its own process."""
    with serving(home, "gateway", "--upstream", upstream, *words, key=key, **more) as running:
        yield running


@contextmanager
def serving(home: Home, *words: str, key: str | None = KEY, **more: Any) -> Iterator[Running]:
    """A command of clawpipe that serves, in its own process: `more` is what a fork would not obey."""
    port, home_env = free_port(), {"CLAWPIPE_HOME": str(home.root), "CLAWPIPE_UPSTREAM_KEY": "sk-upstream"}
    command = [PYTHON if more else sys.executable, "-m", "clawpipe", *words, "--port", str(port)]
    env = home_env | ({"CLAWPIPE_API_KEY": key} if key else {})
    home.root.mkdir(parents=True, exist_ok=True)
    with process(command, env, home.root / "gateway.log", **more) as service:
        running = Running(home, f"http://127.0.0.1:{port}", service)
        service.wait_healthy(f"{running.url}/healthz", timeout=120.0)
        yield running


@pytest.fixture(scope="module")
def fake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fake]:
    """An engine that says all that vLLM says, which the tests of a file share."""
    with faked(tmp_path_factory.mktemp("fake") / "log") as running:
        yield running


@pytest.fixture(scope="module")
def gateway(fake: Fake, quick_scripts: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A gateway before it, which the tests of a file share."""
    with gatewayed(Home(tmp_path_factory.mktemp("gateway") / "home"), fake.url) as running:
        yield running


@pytest.fixture(scope="module")
def start(quick_scripts: None) -> Callable:
    """start(home, upstream, *words): a context with a gateway of the test's own, which starts without imports."""
    return gatewayed


@pytest.fixture(scope="module")
def start_serving(quick_scripts: None) -> Callable:
    """start_serving(home, *words): a context with a command of clawpipe that serves, which starts without imports."""
    return serving


@pytest.fixture(scope="session")
def start_fake() -> Callable:
    """start_fake(log, *flags): a context with a fake engine of the test's own."""
    return faked
