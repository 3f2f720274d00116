"""A gateway before an engine that fails in every way: what is recorded, what the client is told, and what a header says of it."""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import httpx
import openai
import pytest

from clawpipe.core.store.home import Home
from clawpipe.data.forgotten.subject import Subject
from clawpipe.record.removal.forget import forget

KEY = "sk-a-test-key-of-the-gateway"
HEADERS = {"authorization": f"Bearer {KEY}"}
CHAT, MESSAGES, RESPONSES = "/v1/chat/completions", "/v1/messages", "/v1/responses"
STREAM, JSON = "text/event-stream", "application/json"


def chunk(reason=None, **fields):
    return {"id": "r1", "model": "m", "choices": [{"index": 0, "delta": fields, "finish_reason": reason}]}


def sse(*bodies, end=b"data: [DONE]\n\n"):
    return b"".join(b"data: " + json.dumps(body).encode() + b"\n\n" for body in bodies) + end


def whole(reason="stop", content="said", **more):
    message = {"role": "assistant", "content": content}
    return json.dumps({"id": "r1", "choices": [{"index": 0, "message": message, "finish_reason": reason}]} | more).encode()


SAID, ERROR = chunk(content="half"), {"error": {"message": "EngineCore died", "type": "InternalServerError", "code": 500}}
LEAK = {"error": {"message": "wrong key: sk-upstream", "type": "x", "code": 401}}
GOOD = sse(SAID, chunk("stop"))
DEEP = b'{"id":"r1","choices":[{"index":0,"message":{"content":"x","z":%b%b},"finish_reason":"stop"}]}' % (b"[" * 900, b"]" * 900)
BODIES = {
    "good": (STREAM, GOOD),
    "error then mark": (STREAM, sse(SAID, ERROR)),
    "error alone": (STREAM, sse(ERROR)),
    "error without mark": (STREAM, sse(SAID, ERROR, end=b"")),
    "leak": (STREAM, sse(SAID, LEAK)),
    "error after its reason": (STREAM, sse(SAID, chunk("stop"), ERROR)),
    "no reason": (STREAM, sse(SAID)),
    "no reason and no mark": (STREAM, sse(SAID, end=b"")),
    "no mark": (STREAM, sse(SAID, chunk("stop"), end=b"")),
    "half an event": (STREAM, sse(SAID, end=b'data: {"id": "r1", "choices": [{"index": 0, "del')),
    "filtered": (STREAM, sse(SAID, chunk("content_filter"))),
    "aborted": (STREAM, sse(SAID, chunk("abort"))),
    "whole": (JSON, whole()),
    "whole without reason": (JSON, whole(None)),
    "whole aborted": (JSON, whole("abort")),
    "whole with error": (JSON, whole(error={"message": "late"})),
    "an error alone": (JSON, json.dumps(ERROR).encode()),
    "no choices": (JSON, b'{"id":"r1","choices":[]}'),
    "no json": (JSON, b"<html>busy</html>"),
    "deep": (JSON, DEEP),
    "glued": (STREAM, sse(chunk(tool_calls=[{"index": 0, "id": "c", "function": {"name": "a"}}]),
                          chunk(tool_calls=[{"index": 0, "function": {"name": "b"}}]), chunk("tool_calls"))),
    "leave": (STREAM, GOOD),
    "refused by a text": (JSON, b'{"error": "no such adapter"}'),
    "refused by a detail": (JSON, b'{"detail": "too large"}'),
    "refused by vllm": (JSON, b'{"object": "error", "message": "n must be 1", "type": "BadRequestError", "code": 400}'),
    "refused by a list": (JSON, b'{"detail": [{"loc": ["body"], "msg": "missing"}]}'),
    "refused by a leak": (JSON, b'{"error": "wrong key: sk-upstream"}'),
}  # fmt: skip


class Engine(http.server.BaseHTTPRequestHandler):
    """Answers the words of the last message of a chat with a body; the connection's end is the body's end."""

    left = threading.Event()

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if self.path != CHAT:
            self.send_error(404)
            return
        said = body["messages"][-1]["content"]
        text = said if isinstance(said, str) else said[0]["text"]
        kind, data = BODIES.get(text, (JSON, whole()))
        self.send_response(400 if text.startswith("refused") else 200)
        self.send_header("content-type", kind)
        self.end_headers()
        if text == "leave":
            self.wfile.write(data.removesuffix(b"data: [DONE]\n\n"))
            self.wfile.flush()
            self.left.wait(60)
        else:
            self.wfile.write(data)

    def do_GET(self):
        self.send_response(404 if self.path.endswith("/gone") else 200)
        self.end_headers()
        self.wfile.write(b"gone: no such model" if self.path.endswith("/gone") else b"{}")

    def log_message(self, *_):
        pass


@contextmanager
def engine() -> Iterator[str]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Engine) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            Engine.left.set()
            server.shutdown()


@pytest.fixture(scope="module")
def gateway(tmp_path_factory, start):
    home = Home(tmp_path_factory.mktemp("endings") / "home")
    with engine() as url, start(home, url) as running:
        yield running


def ask(gateway, text, session=None, content=None, **fields):
    body = {"model": "m", "messages": [{"role": "user", "content": content or text}], **fields}
    return gateway.post(CHAT, body, **{"x-session-id": session or text.replace(" ", "-")})


def turn(gateway, session):
    [found] = [one for one in gateway.turns() if one.session == session.replace(" ", "-")]
    return found


def uncaptured(gateway, reason):
    lines = gateway.get("/metrics").text.splitlines()
    return sum(
        float(line.split()[-1]) for line in lines if line.startswith(f'clawpipe_gateway_uncaptured_total{{reason="{reason}"')
    )


@pytest.mark.parametrize(
    ("text", "ending", "last"),
    [
        ("good", "complete", "[DONE]"),
        ("error then mark", "broken", "[DONE]"),
        ("error after its reason", "broken", "[DONE]"),
        ("no reason", "broken", "[DONE]"),
        ("no mark", "complete", "[DONE]"),
        ("no reason and no mark", "broken", "error"),
        ("half an event", "broken", "error"),
        ("filtered", "complete", "[DONE]"),
        ("aborted", "broken", "[DONE]"),
    ],
)
def test_a_stream_is_recorded_as_it_ended(gateway, text, ending, last):
    reply = ask(gateway, text, stream=True)
    data = [line[6:] for line in reply.text.splitlines() if line.startswith("data: ")]
    assert all(json.loads(one) for one in data if one != "[DONE]")  # never half an event
    assert data[-1] == "[DONE]" if last == "[DONE]" else "error" in json.loads(data[-1])
    assert turn(gateway, text).ending == ending
    assert "x-clawpipe-captured" not in reply.headers  # nobody knew when the head left


BROKEN = "the engine broke its answer off"
DIED = f"{BROKEN}: EngineCore died"


def asked_by(path, text, **fields):
    said = {"input": text} if path == RESPONSES else {"max_tokens": 9, "messages": [{"role": "user", "content": text}]}
    return {"model": "m"} | said | fields


def events_of(reply):
    return [json.loads(line[6:]) for line in reply.text.splitlines() if line.startswith("data: ")]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("error then mark", DIED),
        ("error after its reason", DIED),
        ("error alone", DIED),
        ("error without mark", DIED),
        ("aborted", BROKEN),
        ("leak", "the engine failed, and what it says of it is not for clients"),
    ],
)
def test_a_broken_stream_ends_with_an_error_in_each_form(gateway, text, told):
    message = events_of(gateway.post(MESSAGES, asked_by(MESSAGES, text, stream=True)))
    assert message[-1] == {"type": "error", "error": {"type": "api_error", "message": told}, "request_id": None}
    assert not {event["type"] for event in message} & {"message_delta", "message_stop"}
    response = events_of(gateway.post(RESPONSES, asked_by(RESPONSES, text, stream=True)))
    assert (response[-1]["type"], response[-1]["response"]["error"]["message"]) == ("response.failed", told)
    assert [event["type"] for event in response if event["type"].startswith("response.completed")] == []
    assert gateway.get(f"{RESPONSES}/{response[-1]['response']['id']}").status_code == 404


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("whole with error", f"{BROKEN}: late"),
        ("an error alone", DIED),
        ("whole aborted", BROKEN),
    ],
)
def test_a_broken_whole_answer_is_refused_in_each_form(gateway, text, told):
    for path in (MESSAGES, RESPONSES):
        refused = gateway.post(path, asked_by(path, text))
        assert (refused.status_code, refused.json()["error"]["message"]) == (502, told)
    for path in (MESSAGES, RESPONSES):
        assert gateway.post(path, asked_by(path, "whole")).status_code == 200


def test_an_engine_that_gives_no_reason_is_passed_on(gateway):
    """Some engines never give one. The record says that it is not known whether such an answer is whole."""
    events = events_of(gateway.post(MESSAGES, asked_by(MESSAGES, "no reason", stream=True)))
    assert events[-1]["type"] == "message_stop"
    assert gateway.post(MESSAGES, asked_by(MESSAGES, "whole without reason")).status_code == 200
    response = gateway.post(RESPONSES, asked_by(RESPONSES, "whole without reason"))
    assert gateway.get(f"{RESPONSES}/{response.json()['id']}").status_code == 200  # and can be gone on with


def test_a_client_library_is_told_of_half_an_event(gateway):
    with pytest.raises(openai.APIError, match="does not answer"):
        gateway.ask("half an event", stream=True, headers={"x-session-id": "library"})


def test_a_client_that_leaves_after_the_reason_had_it_all(gateway):
    body = {"model": "m", "messages": [{"role": "user", "content": "leave"}], "stream": True}
    with httpx.stream("POST", f"{gateway.url}{CHAT}", json=body, headers=HEADERS | {"x-session-id": "leave"}) as reply:
        next(line for line in reply.iter_lines() if '"stop"' in line)
    while not any(one.session == "leave" for one in gateway.turns()):
        pass
    assert turn(gateway, "leave").ending == "complete"


@pytest.mark.parametrize(
    ("text", "captured", "ending"),
    [
        ("whole", "yes", "complete"),
        ("whole without reason", "yes", "broken"),
        ("whole with error", "yes", "broken"),
        ("an error alone", "no", None),
        ("no choices", "no", None),
        ("no json", "no", None),
        ("deep", "no", None),
    ],
)
def test_a_header_says_what_was_written(gateway, text, captured, ending):
    reply = ask(gateway, text)
    assert (reply.status_code, reply.headers["x-clawpipe-captured"]) == (200, captured)
    assert [one.ending for one in gateway.turns() if one.session == text.replace(" ", "-")] == ([ending] if ending else [])


def test_what_no_record_holds_is_counted_by_reason(gateway):
    before = uncaptured(gateway, "a call that changes its name")
    reply = ask(gateway, "glued", stream=True)
    assert '"name":"b"' in reply.text.replace(" ", "")  # the client has it as it came
    assert uncaptured(gateway, "a call that changes its name") == before + 1
    assert not [one for one in gateway.turns() if one.session == "glued"]


def test_who_asks_for_no_capture_is_told_so(gateway):
    for stream in (True, False):
        body = {"model": "m", "messages": [{"role": "user", "content": "good" if stream else "whole"}], "stream": stream}
        reply = gateway.post(CHAT, body, **{"x-clawpipe-capture": "off"})
        assert reply.headers["x-clawpipe-captured"] == "off"


def test_a_question_with_a_picture_is_a_side_turn(gateway):
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBOR"}}
    content = [{"type": "text", "text": "whole"}, picture]
    assert ask(gateway, "seen", content=content).status_code == 200
    body = {"model": "m", "messages": [{"role": "user", "content": content}]}
    gateway.post(CHAT, body, **{"x-session-id": "told", "x-turn-type": "main"})
    assert [(turn(gateway, one).turn_type, turn(gateway, one).turn_type_from) for one in ("seen", "told")] == [
        ("side", "content")
    ] * 2
    assert 'clawpipe_gateway_untaught_total{reason="parts that are no text"} 2.0' in gateway.get("/metrics").text


@pytest.mark.parametrize("depth", [300, 900, 5000])
def test_a_request_that_is_nested_too_deep_is_refused(gateway, depth):
    deep = '{"model":"m","messages":[{"role":"user","content":' + "[" * depth + "]" * depth + "}]}"
    reply = httpx.post(f"{gateway.url}{CHAT}", content=deep, headers=HEADERS)
    assert (reply.status_code, reply.json()["error"]["type"]) == (400, "invalid_request_error")


def test_errors_of_every_origin_have_one_form(gateway):
    foreign = httpx.get(f"{gateway.url}/v1/models", headers=HEADERS | {"origin": "http://evil.example"})
    unknown = gateway.get("/v1/models/gone")
    for reply, status in ((foreign, 403), (unknown, 404)):
        assert (reply.status_code, reply.json()["error"].keys()) == (status, {"message", "type", "param", "code"})


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("refused by a text", "no such adapter"),
        ("refused by a detail", "too large"),
        ("refused by vllm", "n must be 1"),
        ("refused by a list", "the engine answered with 400"),
        ("refused by a leak", "the engine answered with 400"),
    ],
)
def test_a_refusals_reason_is_passed_on_in_any_form(gateway, text, told):
    for reply in (ask(gateway, text), gateway.post(MESSAGES, asked_by(MESSAGES, text))):
        assert (reply.status_code, reply.json()["error"]["message"]) == (400, told)


def test_a_forgotten_session_is_not_said_to_be_captured(gateway):
    assert ask(gateway, "whole", "known").headers["x-clawpipe-captured"] == "yes"
    forget(gateway.home, Subject(session="known"))
    before = uncaptured(gateway, "forgotten")
    assert ask(gateway, "whole", "known").headers["x-clawpipe-captured"] == "no"
    assert "x-clawpipe-captured" not in ask(gateway, "good", "known", stream=True).headers
    assert uncaptured(gateway, "forgotten") == before + 2
