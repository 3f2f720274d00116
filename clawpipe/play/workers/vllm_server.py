"""A vLLM server that a night starts when it is about to sample and ends before it trains, so that one GPU serves both in turn."""

from __future__ import annotations

import os
import secrets
import subprocess
import threading
import time
from pathlib import Path

import httpx

from clawpipe.core.config.engine import KEYS, EngineSpec
from clawpipe.core.conversation.messages import ToolCallFormat
from clawpipe.core.system import processes
from clawpipe.core.system.ports import LOOPBACK, free_port
from clawpipe.errors import BusyError, ConfigError
from clawpipe.model.policy.spec import PolicySpec

KEY = KEYS["vllm"]
_POLL_SECONDS = 0.5
_START_SECONDS = 1800.0  # measured on two busy CPUs: 70 to 580
_ENVIRONMENT = {
    "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "1",  # adapters come and go
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    "HF_HUB_OFFLINE": "1",
}


_PARSERS = {
    "pythonic": "pythonic",
    "hermes": "hermes",
    "llama3": "llama3_json",
    "mistral": "mistral",
    "qwen3-coder": "qwen3_coder",
    "harmony": "openai",
}  # vLLM's names of formats of tool calls


def chat_arguments(tool_call_format: ToolCallFormat) -> tuple[str, ...]:
    """Return the arguments with which a server reads the tool calls that a model writes in chats."""
    return ("--enable-auto-tool-choice", "--tool-call-parser", _PARSERS[tool_call_format]) if tool_call_format in _PARSERS else ()


class VllmServer:
    """At most one server, on loopback, in the environment whose Python `engine.python` names. Threads may ask at once.

    Attributes:
        key: what it asks of clients: that of the environment, or one drawn here.
    """

    def __init__(self, logs: Path) -> None:
        self.key = os.environ.get(KEY) or secrets.token_hex(16)
        self._logs, self._lock = logs, threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._runs: tuple[list[str], str] | None = None  # its command without the port, and its URL

    def place(self, engine: EngineSpec, policy: PolicySpec) -> EngineSpec:
        """Return the engine with the URL of a server that holds the policy's base; it is started if it does not run.

        Raises:
            ConfigError: there is no such Python.
            BusyError: it does not start; the message holds the end of its log.
        """
        if engine.python is None:
            return engine
        command = _command(engine, policy)
        with self._lock:
            dead = self._process is not None and self._process.poll() is not None
            if dead or self._runs is None or self._runs[0] != command:
                self._stop()
                self._runs = (command, self._start(command))
            return engine.model_copy(update={"url": (self._runs[1],), "python": None, "arguments": ()})

    def stop(self) -> None:
        """End the server, if one runs. The next sampling starts another."""
        with self._lock:
            self._stop()

    def _start(self, command: list[str]) -> str:
        if not Path(command[0]).is_file():
            fix = "name the Python of an environment that has vLLM: docs/engines.md"
            raise ConfigError(f"no such file: {command[0]}", "rollouts.engine.python", fix)
        url = f"http://{LOOPBACK}:{(port := free_port())}"
        whole, env = [*command, "--host", LOOPBACK, "--port", str(port)], _ENVIRONMENT | {KEY: self.key}
        self._logs.mkdir(parents=True, exist_ok=True)
        with (self._logs / "vllm.log").open("ab") as log:
            self._process = processes.spawn(whole, env=os.environ | env, stdout=log, stderr=subprocess.STDOUT)
        try:
            self._wait(f"{url}/health", self._process)
        except BaseException:
            self._stop()
            raise
        return url

    def _wait(self, url: str, process: subprocess.Popen[bytes]) -> None:
        """Return when the server answers."""
        deadline = time.monotonic() + _START_SECONDS
        while not _answers(url):
            if process.poll() is not None or time.monotonic() > deadline:
                log = self._logs / "vllm.log"
                tail = " / ".join(log.read_text("utf-8", "replace").splitlines()[-3:])
                raise BusyError(f"vLLM does not start; its log ends: {tail}", str(log), "read its log; then try again")
            time.sleep(_POLL_SECONDS)

    def _stop(self) -> None:
        self._runs, process, self._process = None, self._process, None
        if process is not None:
            processes.stop(process)


def _answers(url: str) -> bool:
    try:
        return httpx.get(url, timeout=2.0).is_success
    except httpx.HTTPError:
        return False


def _command(engine: EngineSpec, policy: PolicySpec) -> list[str]:
    """Return the command without host and port. `arguments` come last, so they win."""
    module = [str(engine.python), "-m", "vllm.entrypoints.openai.api_server"]
    model = ["--model", policy.base, "--served-model-name", engine.model or "base", "--dtype", engine.dtype or policy.dtype]
    protocol = ["--enable-scale-out", "--logprobs-mode", "processed_logprobs", "--enable-lora", "--max-lora-rank", "64"]
    return [*module, *model, *protocol, *engine.arguments]
