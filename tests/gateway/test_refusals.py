"""What the engine refuses: one odd request, or the gateway's own key. Neither is the other clients' loss."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clawpipe.serve.gateway.secret import Secret

KEY = "sk-Upstream_0123-456789abcdef"


def test_one_request_refused_with_questions_loses_only_its_own(tmp_path, home, start, start_fake):
    with start_fake(tmp_path / "log", "--picky") as fake, start(home, fake.url) as gateway:
        gateway.ask("one two")
        assert gateway.ask("an odd one").choices[0].message.content == "an odd one "
        gateway.ask("three")
        gateway.ask("four", stream=True)
        found = {turn.request["messages"][0]["content"]: turn.no_tokens for turn in gateway.turns()}
        assert found.pop("an odd one") == "the engine refuses to say tokens beside what was asked"
        assert found == {"one two": None, "three": None, "four": None}
        text = gateway.get("/metrics").text
        assert "clawpipe_gateway_tokens_refused_total 1.0" in text
        assert 'clawpipe_gateway_alarm{alarm="tokens_refused"} 1.0' in text
        assert "WARNING the engine at" in gateway.service.log.read_text()
        for _ in range(50):
            gateway.ask("more")
        assert 'clawpipe_gateway_alarm{alarm="tokens_refused"} 0.0' in gateway.get("/metrics").text


@pytest.mark.parametrize(("status", "given"), [(401, 502), (403, 502), (400, 400), (429, 429), (500, 500)])
@pytest.mark.parametrize("stream", [False, True])
def test_the_key_of_the_engine_stays_with_the_gateway(gateway, status, given, stream):
    asked = {"model": "agent", "messages": [{"role": "user", "content": f"leak {status}"}], "stream": stream}
    reply = gateway.post("/v1/chat/completions", asked)
    assert reply.status_code == given
    assert reply.json()["error"]["message"]
    assert "sk-upstream" not in reply.text + str(reply.headers)
    assert (reply.headers["retry-after"], reply.headers["x-ratelimit-limit-requests"]) == ("7", "60")
    assert "sk-upstream" not in gateway.service.log.read_text()


@pytest.mark.parametrize("stream", [False, True])
def test_the_key_is_not_in_errors_of_answers_either(gateway, stream):
    asked = {"model": "agent", "messages": [{"role": "user", "content": "confess"}], "stream": stream}
    reply = gateway.post("/v1/chat/completions", asked)
    assert "sk-upstream" not in reply.text
    assert "what it says of it is not for clients" in reply.text


def test_routes_that_are_passed_on_have_errors_of_one_form(gateway):
    reply = gateway.get("/v1/models/unknown-one")  # the engine's own 404 is a plain text
    assert reply.status_code == 404
    assert reply.json()["error"]["message"] == "the engine answered with 404"


def test_queries_and_headers_of_apis_reach_the_engine(gateway):
    beside = {"openai-beta": "x=1", "http-referer": "http://a.example", "cookie": "a=b", "x-secret": "s"}
    seen = gateway.post("/v1/embeddings?api-version=7", {"model": "agent", "input": "x"}, **beside).json()
    assert seen["path"] == "/v1/embeddings?api-version=7"
    assert {name: seen["headers"].get(name) for name in beside} == {
        "openai-beta": "x=1",
        "http-referer": "http://a.example",
        "cookie": None,
        "x-secret": None,
    }
    assert seen["headers"]["authorization"] == "Bearer sk-upstream"


@pytest.mark.parametrize(
    "text",
    [
        KEY,
        f"Incorrect API key provided: Bearer {KEY}.",
        KEY[:14],  # a telling part
        " ".join(KEY),
        f"{KEY[:10]}\u200b{KEY[10:]}",
        f"{KEY[:10]}\\u200b{KEY[10:]}",
        KEY.upper(),
        "%73%6b" + KEY[2:].replace("_", "%5F"),
        KEY.replace("-", "\\u002d"),
        base64.b64encode(f"Bearer {KEY}".encode()).decode(),
        f"token={base64.urlsafe_b64encode(KEY.encode()).decode()}",
        KEY.encode().hex(),
    ],
)
def test_a_key_is_recognised_in_every_spelling(text):
    assert Secret(KEY).is_in(f'{{"error": "{text}"}}')


def test_what_is_no_key_is_not_taken_for_one():
    text = '{"error": {"message": "Incorrect API key provided: sk-Up***cdef. messages: must not be EMPTY"}}'
    assert not Secret(KEY).is_in(text)
    assert not Secret("").is_in(text)
    assert Secret("EMPTY").is_in(text)
    assert not Secret("EMPTY").is_in("messages: empty")


@given(st.text(min_size=8, alphabet=st.characters(categories=["Ll", "Nd"])), st.text(), st.text())
def test_a_key_is_found_wherever_it_stands(key, before, after):
    assert Secret(key).is_in(before + key + after)
