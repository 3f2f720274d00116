"""Open WebUI: its server, and a chat as its page sends one. `CLIENT` is the folder of its environment."""

import json
import os
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from contextlib import contextmanager
from pathlib import Path

from tried import KEY, MODEL, URL, check_parts, run


def ask(address, body=None, token=""):
    headers = {"content-type": "application/json"} | ({"authorization": f"Bearer {token}"} if token else {})
    data = None if body is None else json.dumps(body).encode()
    with urllib.request.urlopen(urllib.request.Request(address, data, headers), timeout=120) as reply:
        return reply.read().decode()


@contextmanager
def started():
    """Open WebUI on a port of its own, without a login. Yields its address and a token."""
    with socket.socket() as probe, tempfile.TemporaryDirectory() as directory:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
        probe.close()
        own = {"DATA_DIR": directory, "WEBUI_AUTH": "False", "OPENAI_API_BASE_URLS": URL, "OPENAI_API_KEYS": KEY}
        own |= {"ENABLE_OLLAMA_API": "False", "OFFLINE_MODE": "True", "HF_HUB_OFFLINE": "1", "WEBUI_SECRET_KEY": "s"}
        own |= {"RAG_EMBEDDING_ENGINE": "openai", "BYPASS_EMBEDDING_AND_RETRIEVAL": "True", "ENABLE_WEBSOCKET_SUPPORT": "False"}
        command = [f"{os.environ['CLIENT']}/bin/open-webui", "serve", "--host", "127.0.0.1", "--port", str(port)]
        with open(f"{directory}/log", "w") as log:
            server = subprocess.Popen(command, env=os.environ | own, cwd=directory, stdout=log, stderr=log)
        try:
            yield address_of(server, port, f"{directory}/log")
        finally:
            server.kill()
            server.wait()


def address_of(server, port, log):
    address = f"http://127.0.0.1:{port}"
    deadline = time.monotonic() + 700
    while True:
        try:
            ask(f"{address}/health")
            return address, json.loads(ask(f"{address}/api/v1/auths/signin", {"email": "", "password": ""}))["token"]
        except (urllib.error.URLError, ConnectionError):
            if server.poll() is not None or time.monotonic() > deadline:
                raise AssertionError(Path(log).read_text()[-300:]) from None
            time.sleep(1)


def of_page(address, token, **more):
    ask(f"{address}/api/models", token=token)
    body = {"model": MODEL, "messages": [{"role": "user", "content": "Say hello."}], "max_tokens": 50} | more
    return ask(f"{address}/api/chat/completions", body, token)


with started() as (address, token):

    def chat():
        assert json.loads(of_page(address, token, stream=False))["choices"][0]["message"]["content"]

    def stream():
        lines = [line[6:] for line in of_page(address, token, stream=True).splitlines() if line.startswith("data: {")]
        check_parts([(json.loads(line).get("choices") or [{}])[0].get("delta", {}).get("content") for line in lines])

    run({"chat": chat, "stream": stream})
