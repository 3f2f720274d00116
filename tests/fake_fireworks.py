"""A fake of Fireworks' REST interface, for tests: models, uploads to signed addresses and deployments, on loopback.

Paths, bodies and states are those that the service's own library (`fireworks-ai` 1.2.30) sends and reads; what models say is not
there. Faults are put in its way as in tests/fake_tinker.py.
"""

from __future__ import annotations

import json
import socket
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.service_faults import Fault, Server

KEY = "fw-of-the-fake"
Json = dict[str, Any]


@dataclass
class FakeFireworks:
    """The service.

    Attributes:
        accounts: of the key.
        requests: each that came, as method and path.
        created: how often something was made, by its name: each costs money.
        files: what was uploaded, by model and name.
    """

    accounts: list[str] = field(default_factory=lambda: ["mine"])
    faults: list[Fault] = field(default_factory=list)  # where method and path begin so
    requests: list[str] = field(default_factory=list)
    created: Counter[str] = field(default_factory=Counter)
    models: dict[str, Json] = field(default_factory=dict)
    deployments: dict[str, Json] = field(default_factory=dict)
    files: dict[tuple[str, str], bytes] = field(default_factory=dict)
    sizes: dict[str, dict[str, str]] = field(default_factory=dict)
    url: str = ""
    lock: Any = field(default_factory=threading.RLock)

    def answer(self, method: str, target: str, body: bytes) -> tuple[int, Json]:
        url = urlsplit(target)
        parts = url.path.strip("/").split("/")
        with self.lock:
            if parts[0] == "upload":
                self.files[parts[1], parts[2]] = body
                return 200, {}
            if parts == ["v1", "accounts"]:
                return 200, {"accounts": [{"name": f"accounts/{name}"} for name in self.accounts]}
            _, _, account, kind, *rest = parts
            if account not in self.accounts:
                return 403, {"message": "not an account of this key"}
            name, _, verb = (rest or [""])[0].partition(":")
            given = json.loads(body) if body else {}
            query = {key: values[0] for key, values in parse_qs(url.query).items()}
            return self._models(method, name, verb, given) if kind == "models" else self._deployments(method, name, query, given)

    def _models(self, method: str, name: str, verb: str, given: Json) -> tuple[int, Json]:
        if method == "POST" and not name:
            return self._make(self.models, given["modelId"], given["model"] | {"state": "UPLOADING"})
        if name not in self.models:
            return 404, {"message": "no such model"}
        if verb == "getUploadEndpoint":
            self.sizes[name] = given["filenameToSize"]
            urls = {file: f"{self.url}/upload/{name}/{file}?signature=secret" for file in self.sizes[name]}
            return 200, {"filenameToSignedUrls": urls}
        if verb == "validateUpload":
            whole = {file: str(len(self.files.get((name, file), b""))) for file in self.sizes.get(name, {})}
            if whole != self.sizes.get(name):
                return 400, {"message": "files are missing"}
            self.models[name]["state"] = "READY"
            return 200, {}
        return 200, self.models[name]

    def _deployments(self, method: str, name: str, query: dict[str, str], given: Json) -> tuple[int, Json]:
        if method == "POST":
            return self._make(self.deployments, query["deploymentId"], given | {"state": "CREATING"})
        if name not in self.deployments:
            return 404, {"message": "no such deployment"}
        if method == "DELETE":
            return 200, self.deployments.pop(name)
        return 200, self.deployments[name]

    def _make(self, among: dict[str, Json], name: str, content: Json) -> tuple[int, Json]:
        if name in among:
            return 409, {"message": "it exists"}
        self.created[name] += 1
        among[name] = content
        return 200, content

    def forget(self) -> None:
        """Begin anew, as an account without anything."""
        for kept in (self.requests, self.created, self.models, self.deployments, self.files, self.sizes):
            kept.clear()

    def fault_of(self, asked: str) -> Fault | None:
        with self.lock:
            self.requests.append(asked)
            counts = {fault.at: sum(one.startswith(fault.at) for one in self.requests) for fault in self.faults}
        return next((one for one in self.faults if asked.startswith(one.at) and one.first <= counts[one.at] <= one.last), None)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    fake: FakeFireworks

    def log_message(self, format: str, *args: Any) -> None: ...

    def do_GET(self) -> None:  # the base class's name
        self._do()

    def do_POST(self) -> None:
        self._do()

    def do_PUT(self) -> None:
        self._do()

    def do_DELETE(self) -> None:
        self._do()

    def _do(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        fault = self.fake.fault_of(f"{self.command} {self.path}")
        if fault and not fault.late and fault.status >= 0:
            return self._fail(fault.status)
        is_upload = self.path.startswith("/upload/")
        if self.headers.get("Authorization") != f"Bearer {KEY}" and not is_upload:
            return self._send(401, {"message": "no such key"})
        assert not (is_upload and self.headers.get("Authorization"))  # the key stays with the service
        status, answer = self.fake.answer(self.command, self.path, body)
        if fault and fault.late:
            return self._fail(fault.status)
        return self._send(status, answer, half=fault is not None)

    def _fail(self, status: int) -> None:
        if status:
            return self._send(status, {"message": "a fault"})
        self.close_connection = True
        return self.connection.shutdown(socket.SHUT_RDWR)

    def _send(self, status: int, content: Json, half: bool = False) -> None:
        body = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body[: len(body) // 2] if half else body)
        if half:
            self.wfile.flush()
            self.close_connection = True


@contextmanager
def fake_fireworks() -> Iterator[FakeFireworks]:
    """Serve until the block ends; KEY is the key."""
    fake = FakeFireworks()
    server = Server(("127.0.0.1", 0), type("Handler", (_Handler,), {"fake": fake}))
    fake.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield fake
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
