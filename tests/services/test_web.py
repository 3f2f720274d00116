"""Web servers answer their own pages, and clients with the secret."""

from __future__ import annotations

import base64

import pytest
from starlette.responses import PlainTextResponse
from starlette.testclient import TestClient

from clawpipe.core.services.web import Locked, SameOrigin

APP = PlainTextResponse("in")


def status(headers: dict[str, str], app=APP, **hosts) -> int:
    return TestClient(SameOrigin(app, **hosts)).get("/", headers=headers).status_code


@pytest.mark.parametrize("host", ["127.0.0.1:4200", "127.0.0.1", "localhost:4200", "LOCALHOST:1", "[::1]:4200"])
def test_this_machine_by_any_of_its_names_and_ports(host: str):
    assert status({"host": host}) == status({"host": host, "origin": f"http://{host}"}) == 200


@pytest.mark.parametrize(
    "host", ["evil.test", "evil.test:4200", "127.0.0.1.evil.test", "127.0.0.1@evil.test", "10.0.0.1", "[::1", ""]
)
def test_a_name_that_resolves_to_this_machine_is_not_ours(host: str):
    assert status({"host": host, "origin": f"http://{host}"}) == 403


@pytest.mark.parametrize(
    "origin",
    [
        "http://evil.test",
        "http://127.0.0.1:8888",
        "http://localhost:4200",
        "http://127.0.0.1",
        "null",
        "",
        "http://127.0.0.1:4200.x.test",
    ],
)
def test_a_page_of_another_origin_is_not_answered(origin: str):
    assert status({"host": "127.0.0.1:4200", "origin": origin}) == 403


def test_a_refusal_has_the_form_of_the_servers_other_errors():
    reply = TestClient(SameOrigin(APP)).get("/", headers={"host": "evil.test"})
    assert reply.json()["error"].keys() == {"message", "type", "param", "code"}
    assert "host name" in reply.json()["error"]["message"]


def test_any_host_name_is_accepted_when_other_machines_may_ask():
    assert status({"host": "models.lan:8000"}, hosts=None) == 200
    assert status({"host": "models.lan:8000", "origin": "http://models.lan:8000"}, hosts=None) == 200
    assert status({"host": "models.lan:8000", "origin": "http://evil.test"}, hosts=None) == 403


def test_the_secret_in_the_forms_that_clients_send_it():
    client = TestClient(Locked(APP, "user:päss", open_path="/health"))
    token = base64.b64encode("user:päss".encode()).decode()
    for scheme in ("Basic", "basic", "BASIC"):
        assert client.get("/", headers={"authorization": f"{scheme} {token}"}).status_code == 200
    for wrong in (f"Bearer {token}", token, "Basic", "Basic ", f"Basic {token[:-4]}", "Basic \xff"):
        refused = client.get("/", headers={"authorization": wrong.encode("latin-1")})
        assert (refused.status_code, refused.headers["www-authenticate"].split()[0]) == (401, "Basic")
    assert client.get("/").status_code == client.get("/health/x").status_code == 401
    assert client.get("/health").status_code == 200
