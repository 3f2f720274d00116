"""A server that a pool starts and ends: here a few lines that answer like the beginning of one."""

from __future__ import annotations

import json
import os
from pathlib import Path

import httpx
import pytest

from clawpipe.core.config.engine import EngineSpec
from clawpipe.core.config.night import Model
from clawpipe.errors import BusyError, ConfigError
from clawpipe.model.policy.spec import PolicySpec, untrained_spec
from clawpipe.play.workers.vllm_server import VllmServer

SERVER = """#!{python}
import http.server, json, os, sys
port = int(sys.argv[sys.argv.index("--port") + 1])
if "--fail" in sys.argv:
    sys.exit("ValueError: no such model")
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        said = {{"argv": sys.argv[1:], "key": os.environ["VLLM_API_KEY"], "lora": os.environ["VLLM_ALLOW_RUNTIME_LORA_UPDATING"]}}
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps(said).encode())
    def log_message(self, *args): ...
http.server.HTTPServer(("127.0.0.1", port), Handler).serve_forever()
"""


@pytest.fixture
def python(tmp_path: Path) -> Path:
    """What stands for the Python of an environment with vLLM."""
    file = tmp_path / "python"
    file.write_text(SERVER.format(python=os.path.realpath("/proc/self/exe")))
    file.chmod(0o700)
    return file


@pytest.fixture
def policy() -> PolicySpec:
    return untrained_spec(Model(base="random"))


def test_one_server_runs_until_it_is_stopped(python, policy, tmp_path):
    server, engine = VllmServer(tmp_path / "logs"), EngineSpec(name="vllm", python=str(python), arguments=("--seed", "3"))
    try:
        placed = server.place(engine, policy)
        assert server.place(engine, policy) == placed
        assert (placed.python, placed.name) == (None, "vllm")
        said = json.loads(httpx.get(f"{placed.url[0]}/health").text)
        assert said["argv"][:4] == ["-m", "vllm.entrypoints.openai.api_server", "--model", policy.base]
        assert {"--enable-scale-out", "processed_logprobs", "--enable-lora", "127.0.0.1"} <= set(said["argv"])
        assert (said["key"], said["lora"]) == (server.key, "1")
        server.stop()
        with pytest.raises(httpx.TransportError):
            httpx.get(f"{placed.url[0]}/health")
        assert httpx.get(f"{server.place(engine, policy).url[0]}/health").is_success
    finally:
        server.stop()


def test_one_that_does_not_start_is_one_line(python, policy, tmp_path):
    server = VllmServer(tmp_path / "logs")
    with pytest.raises(BusyError, match=r"its log ends: .*no such model"):
        server.place(EngineSpec(name="vllm", python=str(python), arguments=("--fail",)), policy)
    with pytest.raises(ConfigError, match="no such file"):
        server.place(EngineSpec(name="vllm", python=str(tmp_path / "nothing")), policy)
