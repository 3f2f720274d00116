"""An engine as hosted services are: Anthropic's interface of its own, chat completions without tokens, no responses, short answers,
compressed bodies."""

from __future__ import annotations

import gzip
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import anthropic
import httpx
import openai
import pytest

from clawpipe.core.store.home import Home
from clawpipe.serve.gateway.messages import CollectedMessage
from clawpipe.serve.gateway.upstream import Upstream
from tests.gateway.conftest import KEY, Running

MOST = 50  # tokens of an answer of a chat completion
TOOL = {"name": "look", "input_schema": {"type": "object"}}
CALL = {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {"at": 1}}
THOUGHT = {"type": "thinking", "thinking": "Hm.", "signature": "signed by the service"}
USAGE = {"input_tokens": 5, "cache_creation_input_tokens": 1, "cache_read_input_tokens": 2, "output_tokens": 3}
MESSAGE = {"id": "msg_of_the_engine", "type": "message", "role": "assistant", "model": "agent", "stop_sequence": None}
PACE = {"request-id": "req_of_the_service", "anthropic-ratelimit-requests-remaining": "7"}
CHOICE = {"index": 0, "message": {"role": "assistant", "content": "Two."}, "finish_reason": "stop"}
UNNAMED = {"type": "function", "function": {"name": "look", "arguments": "{}"}}  # some engines give a call no id
CALLING = CHOICE | {"message": {"role": "assistant", "content": None, "tool_calls": [UNNAMED]}, "finish_reason": "tool_calls"}
EVENTS = (
    {"type": "message_start", "message": MESSAGE | {"content": [], "stop_reason": None, "usage": USAGE | {"output_tokens": 1}}},
    {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
    {"type": "ping"},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "I "}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "look."}},
    {"type": "content_block_stop", "index": 0},
    {"type": "content_block_start", "index": 1, "content_block": CALL | {"input": {}}},
    {"type": "content_block_delta", "index": 1, "delta": {"type": "input_json_delta", "partial_json": '{"at"'}},
    {"type": "content_block_delta", "index": 1, "delta": {"type": "input_json_delta", "partial_json": ": 1}"}},
    {"type": "content_block_stop", "index": 1},
    {"type": "message_delta", "delta": {"stop_reason": "tool_use", "stop_sequence": None}, "usage": {"output_tokens": 3}},
    {"type": "message_stop"},
)


class Engine(BaseHTTPRequestHandler):
    asked: list[tuple[str, dict, dict]] = []  # noqa: RUF012

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.asked.append((self.path, body, {name.lower(): value for name, value in self.headers.items()}))
        if self.path.startswith("/v1/messages/count_tokens"):
            self.say({"input_tokens": 42} if "tools" in body else {"tokens": 42})
        elif self.path.startswith("/v1/messages"):
            self.of_messages(body)
        elif not self.path.startswith("/v1/chat/completions"):
            self.say({"detail": "Not Found"}, 404)
        elif body["messages"][-1]["content"] == "be hot":
            self.say({"error": {"message": "temperature: less than or equal to 2", "type": "invalid_request_error"}}, 400)
        elif (body.get("max_completion_tokens") or 0) > MOST:
            self.say({"error": {"message": "max_completion_tokens is too large", "type": "invalid_request_error"}}, 400)
        else:
            usage = {"prompt_tokens": 4, "completion_tokens": 1, "total_tokens": 5}
            choices = [CALLING if body["messages"][-1]["content"] == "look" else CHOICE]
            self.say({"id": "chatcmpl-1", "object": "chat.completion", "model": "agent", "choices": choices, "usage": usage})

    def do_GET(self):
        self.say({"object": "list", "data": [{"id": "agent", "object": "model"}]})

    def of_messages(self, body):
        if body.get("stream"):
            text = "".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in EVENTS)
            self.write(text.encode(), "text/event-stream")
        else:
            self.say(MESSAGE | {"content": [THOUGHT, CALL], "stop_reason": "tool_use", "usage": USAGE})

    def say(self, body, status=200):
        self.write(json.dumps(body).encode(), "application/json", status)

    def write(self, data, kind, status=200):
        data = gzip.compress(data)
        self.send_response(status)
        named = {"content-type": kind, "content-encoding": "gzip", "content-length": str(len(data))}
        for name, value in (named | PACE).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_):
        pass


@pytest.fixture(scope="module")
def hosted(start, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Engine) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            with start(Home(tmp_path_factory.mktemp("hosted") / "home"), f"http://127.0.0.1:{server.server_port}/v1") as running:
                yield running
        finally:
            server.shutdown()


@pytest.fixture
def claude(hosted: Running) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(base_url=hosted.url, api_key=KEY, max_retries=0, timeout=60) as client:
        yield client


def asked(path: str) -> list[tuple[dict, dict]]:
    """What the engine was asked by a route, but for the gateway's own requests of one token."""
    return [(body, headers) for route, body, headers in Engine.asked if route == path and body.get("max_tokens") != 1]


def test_messages_are_asked_by_the_engines_own_route(hosted, claude):
    given = {"model": "agent", "max_tokens": 900, "tools": [TOOL], "messages": [{"role": "user", "content": "How many mugs"}]}
    said = claude.messages.create(**given, extra_headers={"anthropic-beta": "a-beta"})
    assert (said.id, said.content[0].signature) == ("msg_of_the_engine", "signed by the service")
    (sent, headers), turn = asked("/v1/messages")[-1], hosted.turns()[-1]
    assert (sent, headers["anthropic-beta"], headers["x-api-key"]) == (given, "a-beta", "sk-upstream")
    assert (turn.api, turn.answers[0].token_ids, turn.response_id, turn.logprobs_kind) == ("messages", None, said.id, "none")
    [answer] = turn.answers
    assert (answer.message["reasoning_content"], answer.finish_reason) == ("Hm.", "tool_calls")
    assert answer.message["tool_calls"][0]["function"] == {"name": "look", "arguments": '{"at": 1}'}
    assert turn.usage == {"prompt_tokens": 8, "completion_tokens": 3, "total_tokens": 11}


def test_the_service_counts_tokens_itself_and_says_its_pace(hosted, claude):
    asked = {"model": "agent", "messages": [{"role": "user", "content": "Hi"}]}
    assert claude.messages.count_tokens(**asked, tools=[TOOL]).input_tokens == 42
    with pytest.raises(anthropic.InternalServerError, match="does not say how many tokens"):
        claude.messages.count_tokens(**asked)
    said = claude.messages.with_raw_response.create(**asked, max_tokens=9)
    assert {name: said.headers[name] for name in PACE} == PACE
    assert said.headers["x-request-id"] == "req_of_the_service"


def test_streamed_messages_of_the_engine_pass_and_are_recorded(hosted, claude):
    with claude.messages.stream(model="agent", max_tokens=9, messages=[{"role": "user", "content": "Hi"}]) as events:
        said = events.get_final_message()
    turn = hosted.turns()[-1]
    assert (said.content[0].text, said.content[1].input, turn.ending) == ("I look.", {"at": 1}, "complete")
    message = turn.answers[0].message
    assert (message["content"], message["tool_calls"][0]["function"]["arguments"]) == ("I look.", '{"at": 1}')
    assert turn.usage["completion_tokens"] == 3


def test_responses_are_asked_as_chats_where_the_engine_has_none(hosted):
    with hosted.client() as client:
        first = client.responses.create(model="agent", input="one", max_output_tokens=40)
        second = client.responses.create(model="agent", input="two", previous_response_id=first.id)
    sent, _ = asked("/v1/chat/completions")[-1]
    assert (first.output_text, second.output_text) == ("Two.", "Two.")
    assert [one["content"] for one in sent["messages"]] == ["one", "Two.", "two"]
    assert len(asked("/v1/responses")) == 1  # the second time it is known
    one, two = hosted.turns()[-2:]
    assert (one.api, one.response_id, two.request["messages"][:2]) == ("responses", first.id, sent["messages"][:2])
    assert one.session == two.session


def test_a_limit_beyond_the_engine_is_left_out(hosted):
    with hosted.client() as client:
        said = client.responses.create(model="agent", input="one", max_output_tokens=32_000)
        with pytest.raises(openai.BadRequestError):  # a chat completion passes as it is
            client.chat.completions.create(
                model="agent", max_completion_tokens=32_000, messages=[{"role": "user", "content": "one"}]
            )
    assert (said.output_text, said.max_output_tokens) == ("Two.", 32_000)
    assert hosted.turns()[-1].request["max_completion_tokens"] == 32_000


def test_another_refusal_is_not_asked_again_without_a_limit(hosted):
    before = len(asked("/v1/chat/completions"))
    refused = hosted.post("/v1/responses", {"model": "agent", "input": "be hot", "max_output_tokens": 40, "temperature": 3})
    assert (refused.status_code, refused.json()["error"]["message"]) == (400, "temperature: less than or equal to 2")
    assert [body["max_completion_tokens"] for body, _ in asked("/v1/chat/completions")[before:]] == [40]


@pytest.mark.parametrize("limit", [-1, True, "9", 1.5])
def test_a_limit_that_is_no_number_of_tokens_is_refused(hosted, limit):
    before, said = len(Engine.asked), [{"role": "user", "content": "one"}]
    for path, body in (
        ("/v1/messages", {"max_tokens": limit, "messages": said}),
        ("/v1/responses", {"max_output_tokens": limit, "input": "one"}),
    ):
        refused = hosted.post(path, {"model": "agent"} | body)
        assert (refused.status_code, "not a number of tokens" in refused.json()["error"]["message"]) == (400, True)
    assert len(Engine.asked) == before


def test_an_answer_of_no_tokens_is_the_engines_own_route(hosted):
    said = hosted.post("/v1/messages", {"model": "agent", "max_tokens": 0, "messages": [{"role": "user", "content": "one"}]})
    assert (said.status_code, said.headers["x-clawpipe-captured"], asked("/v1/messages")[-1][0]["max_tokens"]) == (200, "off", 0)
    refused = hosted.post("/v1/responses", {"model": "agent", "input": "one", "max_output_tokens": 0})
    assert (refused.status_code, "an answer of no tokens" in refused.json()["error"]["message"]) == (400, True)


def test_a_call_keeps_the_id_that_its_client_was_given(hosted):
    with hosted.client() as client:
        first = client.responses.create(model="agent", input="look")
        result = {"type": "function_call_output", "call_id": first.output[0].call_id, "output": "4"}
        client.responses.create(model="agent", input=[result], previous_response_id=first.id)
    _, said, told = asked("/v1/chat/completions")[-1][0]["messages"]
    assert said["tool_calls"][0]["id"] == told["tool_call_id"] == first.output[0].call_id


@pytest.mark.parametrize("path", ["input_tokens", "compact", "resp_1"])
def test_nothing_can_be_posted_beside_responses(hosted, path):
    assert hosted.post(f"/v1/responses/{path}", {"model": "agent", "input": "one"}).status_code == 404


def test_a_response_can_be_had_again_until_it_is_deleted(hosted):
    with hosted.client() as client:
        said = client.responses.create(model="agent", input="one")
        assert client.responses.retrieve(said.id).output_text == "Two."
        client.responses.delete(said.id)
        for ask in (client.responses.retrieve, client.responses.delete):
            with pytest.raises(openai.NotFoundError):
                ask(said.id)
        unstored = client.responses.create(model="agent", input="one", store=False)
        with pytest.raises(openai.NotFoundError):
            client.responses.retrieve(unstored.id)


def test_what_a_response_was_asked_with_is_listed(hosted):
    with hosted.client() as client:
        first = client.responses.create(model="agent", input="one")
        second = client.responses.create(model="agent", input="two", previous_response_id=first.id)
        listed = client.responses.input_items.list(second.id, order="asc")
        assert [one.content[0].text for one in listed.data] == ["one", "Two.", "two"]
        with pytest.raises(openai.BadRequestError, match="is over"):
            client.responses.cancel(first.id)
        for ask in (client.responses.cancel, client.responses.input_items.list):
            with pytest.raises(openai.NotFoundError):
                ask("resp_of_another_day")


def test_an_item_may_be_named_in_place_of_being_sent(hosted):
    with hosted.client() as client:
        first = client.responses.create(model="agent", input="one")
        named = {"type": "item_reference", "id": first.output[0].id}
        client.responses.create(
            model="agent", input=[{"role": "user", "content": "one"}, named, {"role": "user", "content": "two"}]
        )
        sent, _ = asked("/v1/chat/completions")[-1]
        assert [one["content"] for one in sent["messages"]] == ["one", "Two.", "two"]
        client.responses.delete(first.id)
        with pytest.raises(openai.BadRequestError, match="an item that is not kept here"):
            client.responses.create(model="agent", input=[named])


def test_what_no_chat_can_say_is_refused_where_there_is_no_route(hosted):
    body = {"model": "agent", "input": "x", "conversation": "conv_1"}
    refused = hosted.post("/v1/responses", body)
    assert (refused.status_code, refused.json()["error"]["code"]) == (400, "unsupported_parameter")
    unknown = hosted.post("/v1/responses", {"model": "agent", "input": "x", "previous_response_id": "resp_of_another_day"})
    assert (unknown.status_code, "previous response" in unknown.json()["error"]["message"]) == (400, True)


def test_compressed_requests_reach_the_engine_plain(hosted):
    data = gzip.compress(json.dumps({"model": "agent", "input": "packed"}).encode())
    headers = {"authorization": f"Bearer {KEY}", "content-encoding": "gzip", "accept-encoding": "gzip"}
    answer = httpx.post(f"{hosted.url}/v1/responses", content=data, headers=headers)
    assert (answer.status_code, asked("/v1/chat/completions")[-1][0]["messages"][0]["content"]) == (200, "packed")


def test_the_key_of_anthropics_service_is_sent_in_its_own_header():
    headers = [Upstream("http://127.0.0.1:1", key)._headers for key in ("", "sk-ant-api03-x", "sk-x")]
    assert headers == [{}, {"x-api-key": "sk-ant-api03-x"}, {"authorization": "Bearer sk-x", "x-api-key": "sk-x"}]


@pytest.mark.parametrize(
    ("events", "reason", "failed"),
    [
        (EVENTS, "tool_calls", False),
        (EVENTS[:5], None, False),
        ((*EVENTS[:5], {"type": "error", "error": {"type": "overloaded_error", "message": "later"}}), None, True),
        ((*EVENTS[:-2], {"type": "message_delta", "delta": {"stop_reason": "pause_turn"}, "usage": {}}), "pause_turn", False),
    ],
)
def test_how_a_message_ended(events, reason, failed):
    collected = CollectedMessage()
    for event in events:
        collected.add(event)
    assert (collected.reasons, collected.failed, collected.uncaptured()) == ([reason], failed, None)


@pytest.mark.parametrize(
    "block", [{"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}}, {"type": "text", "text": 3}, {}]
)
def test_blocks_that_no_chat_has_are_not_captured(block):
    collected = CollectedMessage()
    collected.add(MESSAGE | {"content": [block], "stop_reason": "end_turn", "usage": USAGE})
    assert collected.uncaptured()
