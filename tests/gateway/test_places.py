"""Places for requests at a time: how many, whose, and what those get that find none."""

from __future__ import annotations

import threading
from contextlib import ExitStack, contextmanager

import httpx
import pytest

from clawpipe.serve.gateway.clients import Clients
from clawpipe.serve.gateway.keys import key_of, make_key, revoke_key
from clawpipe.serve.serving.errors import ApiError

CHAT = "/v1/chat/completions"


@contextmanager
def streams(gateway, count, key):
    """Open answers of an engine that hangs."""
    body = {"model": "agent", "messages": [{"role": "user", "content": "one two three four"}], "stream": True}
    headers = {"authorization": f"Bearer {key}"}
    with ExitStack() as stack:
        client = stack.enter_context(httpx.Client(timeout=60, limits=httpx.Limits(max_connections=None)))
        for _ in range(count):
            answer = stack.enter_context(client.stream("POST", f"{gateway.url}{CHAT}", json=body, headers=headers))
            assert answer.status_code == 200, answer.read()
        yield


def test_a_request_too_many_is_told_to_come_back(home, start, start_fake, tmp_path):
    key = make_key(home, "ann")
    with start_fake(tmp_path / "log", "--hang") as fake, start(home, fake.url, "--at-once", "8", key=None) as gateway:
        with streams(gateway, 8, key):
            replies, body = [], {"model": "agent", "messages": [{"role": "user", "content": "hi"}]}

            def ask():
                replies.append(gateway.post(CHAT, body, key=key))

            threads = [threading.Thread(target=ask) for _ in range(40)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert {one.status_code for one in replies} == {503}
            assert {one.headers["retry-after"] for one in replies} == {"5"}
            assert replies[0].json()["error"] == {
                "message": "8 requests are being answered already",
                "type": "server_error",
                "param": None,
                "code": "server_busy",
            }
            assert gateway.get("/healthz").status_code == 200
        fake.go_on()
        with gateway.client(key).with_options(max_retries=3) as client:  # the gateway may still notice that the streams ended
            assert client.chat.completions.create(model="agent", messages=body["messages"]).choices


def test_one_key_leaves_places_for_the_others(home):
    make_key(home, "bob")
    make_key(home, "carl", at_once=8)
    ann, clients = key_of("ann", "sk-ann"), Clients(home, [key_of("ann", "sk-ann")], at_once=8)
    with ExitStack() as taken:
        for _ in range(6):
            taken.enter_context(clients.place(ann))
        with pytest.raises(ApiError) as refused:
            taken.enter_context(clients.place(ann))
        assert refused.value.status == 429
        other = key_of("bob", "sk-bob")
        for _ in range(2):
            taken.enter_context(clients.place(other))
        with pytest.raises(ApiError) as full:
            taken.enter_context(clients.place(other))
        assert (full.value.status, full.value.headers) == (503, {"retry-after": "5"})
    carl = key_of("carl", "sk-carl").model_copy(update={"at_once": 8})
    with ExitStack() as taken:  # its owner said so
        for _ in range(8):
            taken.enter_context(clients.place(carl))


def test_the_only_key_may_take_all_places(home):
    make_key(home, "gone")
    revoke_key(home, "gone")
    ann = key_of("ann", "sk-ann")
    clients = Clients(home, [ann], at_once=4)
    with ExitStack() as taken:
        for _ in range(4):
            taken.enter_context(clients.place(ann))
