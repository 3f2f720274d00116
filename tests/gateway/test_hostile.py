"""Clients that mean harm, or do not know better, against the real server."""

from __future__ import annotations

import http.client
import json
import resource
import signal
import socket
import threading
from contextlib import suppress
from urllib.parse import urlsplit

import httpx
import openai
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

KEY = "sk-a-test-key-of-the-gateway"
HEADERS = {"authorization": f"Bearer {KEY}"}
CHAT = "/v1/chat/completions"


def raw(gateway, data: bytes, timeout: float = 60) -> bytes:
    """What the server answers to these bytes until it closes."""
    place = urlsplit(gateway.url)
    with socket.create_connection((place.hostname, place.port), timeout=timeout) as client:
        client.sendall(data)
        return b"".join(iter(lambda: client.recv(65536), b""))


@pytest.mark.parametrize(
    ("name", "value"),
    [("Host", "evil.example"), ("Host", "127.0.0.1.evil.example"), ("Origin", "http://evil.example"), ("Origin", "null")],
)
def test_a_foreign_host_or_origin_is_refused(gateway, name, value):
    for path in ("/healthz", "/metrics", CHAT):
        reply = httpx.request("POST", f"{gateway.url}{path}", headers=HEADERS | {name: value})
        assert (reply.status_code, reply.json()["error"]["code"]) == (403, "foreign_origin")


def test_no_key_no_answer(gateway):
    for path in ("/metrics", "/v1/models", CHAT, "/v1/feedback", "/v1/sessions/x/done", "/anything"):
        assert httpx.post(f"{gateway.url}{path}").status_code == 401


@pytest.mark.parametrize("declared", [True, False])
def test_an_oversized_body_is_refused_while_it_arrives(gateway, declared):
    """Its length may be a lie, or not be said at all."""
    total = 17 << 20
    connection = http.client.HTTPConnection(urlsplit(gateway.url).netloc, timeout=60)
    chunks = (b"x" * 65536 for _ in range(total // 65536))
    body = b"x" * total if declared else chunks
    try:
        connection.request("POST", CHAT, body=body, headers=HEADERS, encode_chunked=not declared)
        status = connection.getresponse().status
    except (BrokenPipeError, ConnectionResetError):  # it was told, and did not listen
        status = 413
    finally:
        connection.close()
    assert status == 413
    assert gateway.ask("still here").choices


def test_bytes_that_are_no_http_harm_nobody(gateway):
    head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\n"
    for data in (b"\0" * 100 + b"\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", head + b"Content-Length: -1\r\n\r\n"):
        assert b"HTTP/1.1 4" in raw(gateway, data)
    with suppress(ConnectionResetError):  # closed before it was read
        assert b"HTTP/1.1 4" in raw(gateway, head + b"X: " + b"y" * 200_000 + b"\r\n\r\n")
    assert gateway.ask("still here").choices


def test_slow_clients_keep_nobody_waiting(gateway):
    """Heads that never end and bodies that never come: other clients are served, and the silent ones are cut off in time."""
    place = urlsplit(gateway.url)
    head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer " + KEY.encode()
    slow = [socket.create_connection((place.hostname, place.port), timeout=60) for _ in range(100)]
    try:
        for number, client in enumerate(slow):
            client.sendall(head if number % 2 else head + b"\r\nContent-Length: 100\r\n\r\n{")
        assert gateway.ask("served").choices
        closed = slow[1].recv(1000)  # a head that did not end within ten seconds
        assert closed == b""
        assert b"408" in slow[0].recv(1000)[:20]
    finally:
        for client in slow:
            client.close()


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
fields = st.sampled_from(
    ["model", "messages", "stream", "metadata", "user", "session_id", "turn_type", "stream_options", "temperature", "n"]
)


@settings(max_examples=150)
@given(st.dictionaries(fields, json_values) | json_values)
def test_no_json_makes_the_gateway_fail(gateway, body):
    """An error of the client's in OpenAI's form, or what the engine says of it; never one of the gateway's own."""
    reply = httpx.post(f"{gateway.url}{CHAT}", content=dumped(body), headers=HEADERS)
    assert reply.status_code < 500 or "the engine answered" in reply.text, reply.text
    if reply.status_code >= 400:
        assert reply.json()["error"]["message"]


@settings(max_examples=100)
@given(
    json_values
    | st.dictionaries(st.sampled_from(["response_id", "thumb", "rating", "turn", "session_id", "correction"]), json_values)
)
def test_no_feedback_makes_it_fail(gateway, body):
    reply = httpx.post(f"{gateway.url}/v1/feedback", content=dumped(body), headers=HEADERS)
    assert reply.status_code in (201, 400)


def dumped(body) -> bytes:
    return json.dumps(body).encode()


@settings(max_examples=60)
@given(st.binary(max_size=300))
def test_no_bytes_make_it_fail(gateway, data):
    reply = httpx.post(f"{gateway.url}{CHAT}", content=data, headers=HEADERS)
    assert reply.status_code == 400
    assert reply.json()["error"]["type"] == "invalid_request_error"


def limit_files(size: int):
    """A file limit in place of a full disk: writes beyond it fail with EFBIG, after the part that fits."""

    def limit() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))

    return limit


@pytest.mark.parametrize("policy", ["refuse", "serve"])
def test_when_nothing_can_be_written_the_policy_decides(home, fake, start, policy):
    with start(home, fake.url, "--when-full", policy, preexec_fn=limit_files(64 << 10)) as gateway:
        asked, refusals = [], []
        for number in range(60):
            text = f"{number} " + "cups " * 400
            try:
                gateway.ask(text)
                asked.append(text)
            except openai.InternalServerError as error:
                refusals.append((error.status_code, error.response.json()["error"]["code"], error.response.headers["retry-after"]))
        assert {*refusals} <= {(503, "capture_unavailable", "30")}
        captured = {turn.request["messages"][0]["content"] for turn in gateway.turns()}
        if policy == "refuse":
            assert 0 < len(asked) < 60
            assert {*asked} <= captured  # whoever got an answer was captured
            before = len(fake.asked())
            with pytest.raises(openai.InternalServerError):
                gateway.ask("refused before the engine is asked")
            assert len(fake.asked()) == before
        else:
            assert len(asked) == 60
            body = {"model": "agent", "messages": [{"role": "user", "content": "cups " * 9000}]}
            assert gateway.post(CHAT, body).headers["x-clawpipe-captured"] == "no"
            asked.append(body["messages"][0]["content"])
            lost = sum(text not in captured for text in asked)
            assert lost > 0
            assert f'clawpipe_gateway_uncaptured_total{{reason="not written"}} {float(lost)}' in gateway.get("/metrics").text


def test_many_at_once_are_all_answered_and_captured(gateway):
    threads = [threading.Thread(target=gateway.ask, args=(f"crowd {number}",)) for number in range(64)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    texts = {turn.request["messages"][0]["content"] for turn in gateway.turns()}
    assert {f"crowd {number}" for number in range(64)} <= texts
