"""Responses and Anthropic messages at the server: the published clients against a real one."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import anthropic
import httpx
import openai
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from clawpipe.data.wire.dialects.kept import KeptResponses
from clawpipe.serve.serving.dialects import counted_translation, message_translation, response_translation
from clawpipe.serve.serving.errors import ApiError
from tests.serving.conftest import KEY, TALK, TOOLS, Running
from tests.wire.dialects.strictly import message, message_events, response, response_events, strictly

STOCK = TOOLS[0].as_function()["function"]
RESPONSE_TOOL = {"type": "function", **STOCK}
MESSAGE_TOOL = {"name": STOCK["name"], "description": STOCK["description"], "input_schema": STOCK["parameters"]}
GREEDY = {"temperature": 0}  # of which the package knows nothing
QUESTION, RESULT, ANSWER = TALK[0].content, TALK[2].content, TALK[3].content


@pytest.fixture
def speaker(parrot_server: Running) -> Iterator[openai.OpenAI]:
    with parrot_server.client() as client:
        yield client


@pytest.fixture
def claude(parrot_server: Running) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(base_url=parrot_server.url, api_key=KEY, max_retries=0, timeout=60) as client:
        yield client


def post(server: Running, path: str, body: object, **headers: str) -> httpx.Response:
    return httpx.post(f"{server.url}{path}", json=body, headers={"x-api-key": KEY} | headers, timeout=60)


def events_of(server: Running, path: str, body: dict) -> list[dict]:
    """The events of a stream, whose names are those of their data."""
    with httpx.stream("POST", f"{server.url}{path}", json=body | {"stream": True}, headers={"x-api-key": KEY}, timeout=60) as reply:
        lines = [line for line in reply.iter_lines() if line]
    events = [json.loads(line[6:]) for line in lines[1::2]]
    assert lines[::2] == [f"event: {event['type']}" for event in events]
    return events


def prompt_of(usage):
    """Return the tokens of a prompt, of which Anthropic's usage counts those apart that had been computed before."""
    return usage.input_tokens + usage.cache_read_input_tokens


def test_a_response_calls_a_tool_and_goes_on_with_its_result(speaker):
    asked = [{"role": "user", "content": QUESTION}]
    first = speaker.responses.create(model="agent", input=asked, tools=[RESPONSE_TOOL], temperature=0, max_output_tokens=60)
    said, call = first.output
    assert (first.output_text, first.status, call.type, json.loads(call.arguments)) == (
        "I look.",
        "completed",
        "function_call",
        {"item": "mug"},
    )
    result = {"type": "function_call_output", "call_id": call.call_id, "output": RESULT}
    history = [*asked, said.model_dump(exclude_none=True), call.model_dump(exclude_none=True), result]
    second = speaker.responses.create(model="agent", input=history, tools=[RESPONSE_TOOL], temperature=0)
    assert second.output_text == ANSWER
    third = speaker.responses.create(
        model="agent", input=[result], previous_response_id=first.id, tools=[RESPONSE_TOOL], temperature=0
    )
    assert (third.output_text, third.usage.input_tokens) == (ANSWER, second.usage.input_tokens)


def test_a_message_calls_a_tool_and_goes_on_with_its_result(claude, parrot_server):
    asked = [{"role": "user", "content": [{"type": "text", "text": QUESTION}]}]
    first = claude.messages.create(model="agent", max_tokens=60, messages=asked, tools=[MESSAGE_TOOL], extra_body=GREEDY)
    text, call = first.content
    assert (text.text, call.name, call.input, first.stop_reason) == ("I look.", "stock", {"item": "mug"}, "tool_use")
    result = {"type": "tool_result", "tool_use_id": call.id, "content": [{"type": "text", "text": RESULT}]}
    history = [*asked, {"role": "assistant", "content": first.content}, {"role": "user", "content": [result]}]
    second = claude.messages.create(model="agent", max_tokens=60, messages=history, tools=[MESSAGE_TOOL], extra_body=GREEDY)
    assert (second.content[0].text, second.stop_reason) == (ANSWER, "end_turn")
    counted = claude.messages.count_tokens(model="agent", messages=history, tools=[MESSAGE_TOOL])
    assert counted.input_tokens == prompt_of(second.usage)
    with parrot_server.client() as client:
        messages = [*TALK[:1], *TALK[1:3]]
        chat = client.chat.completions.create(
            model="agent",
            tools=[{"type": "function", "function": STOCK}],
            temperature=0,
            messages=[
                {"role": "user", "content": messages[0].content},
                {
                    "role": "assistant",
                    "content": "I look.",
                    "tool_calls": [
                        {"id": call.id, "type": "function", "function": {"name": "stock", "arguments": '{"item": "mug"}'}}
                    ],
                },
                {"role": "tool", "tool_call_id": call.id, "content": RESULT},
            ],
        )
    assert chat.usage.prompt_tokens == prompt_of(second.usage)


def test_streams_are_the_whole_answers_and_of_the_types(parrot_server):
    asked = {"model": "agent", "input": QUESTION, "tools": [RESPONSE_TOOL], "temperature": 0, "max_output_tokens": 60}
    whole = response(post(parrot_server, "/v1/responses", asked).json())
    events = response_events(events_of(parrot_server, "/v1/responses", asked))
    assert [event.type for event in events[:2]] == ["response.created", "response.in_progress"]
    streamed = events[-1].response
    assert (streamed.output_text, streamed.usage.total_tokens) == (whole.output_text, whole.usage.total_tokens)
    assert [one.name for one in streamed.output if one.type == "function_call"] == ["stock"]

    asked = {"model": "agent", "messages": [{"role": "user", "content": QUESTION}], "tools": [MESSAGE_TOOL], "temperature": 0}
    said = message(post(parrot_server, "/v1/messages", asked | {"max_tokens": 60}).json())
    told = message_events(events_of(parrot_server, "/v1/messages", asked | {"max_tokens": 60}))
    assert prompt_of(told[0].message.usage) == prompt_of(said.usage)
    assert (told[-2].delta.stop_reason, told[-2].usage.output_tokens) == ("tool_use", said.usage.output_tokens)


def test_the_clients_read_streams(speaker, claude):
    fields = {"model": "agent", "tools": [RESPONSE_TOOL], "temperature": 0, "max_output_tokens": 60}
    with speaker.responses.stream(input=QUESTION, **fields) as stream:
        assert "".join(event.delta for event in stream if event.type == "response.output_text.delta") == "I look."
        assert stream.get_final_response().output[1].name == "stock"
    asked = [{"role": "user", "content": QUESTION}]
    with claude.messages.stream(model="agent", max_tokens=60, messages=asked, tools=[MESSAGE_TOOL], extra_body=GREEDY) as stream:
        assert "".join(stream.text_stream) == "I look."
        assert stream.get_final_message().content[1].input == {"item": "mug"}


def test_system_prompts_stand_before_the_conversation(random_server, client):
    texts = ["Be brief.", "Be kind."]
    chat = client.chat.completions.create(
        model="agent",
        max_tokens=4,
        temperature=0,
        messages=[{"role": "system", "content": "\n".join(texts)}, {"role": "user", "content": "Hi"}],
    )
    system = [{"type": "text", "text": text, "cache_control": {"type": "ephemeral"}} for text in texts]
    asked = {"model": "agent", "system": system, "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 4, "temperature": 0}
    said = message(
        post(random_server, "/v1/messages?beta=true", asked, **{"anthropic-beta": "x", "anthropic-version": "2023-06-01"}).json()
    )
    again = response(
        post(
            random_server,
            "/v1/responses",
            {"model": "agent", "instructions": "\n".join(texts), "input": "Hi", "max_output_tokens": 4, "temperature": 0},
        ).json()
    )
    assert "".join(block.text for block in said.content) == chat.choices[0].message.content == again.output_text
    assert prompt_of(said.usage) == chat.usage.prompt_tokens == again.usage.input_tokens


def test_an_answer_that_is_cut_says_so(random_server):
    asked = {"model": "agent", "input": "Hi", "max_output_tokens": 3, "temperature": 0}
    cut = response(post(random_server, "/v1/responses", asked).json())
    assert (cut.status, cut.incomplete_details.reason, cut.usage.output_tokens) == ("incomplete", "max_output_tokens", 3)
    turn = {"model": "agent", "messages": [{"role": "user", "content": "Hi"}], "temperature": 0}
    assert message(post(random_server, "/v1/messages", turn | {"max_tokens": 3}).json()).stop_reason == "max_tokens"


def test_a_limit_beyond_the_context_is_cut_to_it(random_server):
    asked = {"model": "agent", "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 10**6}
    kind = message_translation().kind
    prepared = kind.prepare(random_server.policy, kind.parse(json.dumps(asked).encode()), "")
    assert prepared.prompt_tokens + prepared.sampling.max_new_tokens == random_server.policy.context


def test_a_stop_sequence_is_named(random_server, ask):
    text = ask(temperature=0, max_completion_tokens=12).choices[0].message.content
    stop = text[len(text) // 2 :][:3]
    asked = {"model": "agent", "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 12, "temperature": 0}
    said = message(post(random_server, "/v1/messages", asked | {"stop_sequences": [stop]}).json())
    assert (said.stop_reason, said.stop_sequence) == ("stop_sequence", stop)
    assert said.content[0].text == text[: text.index(stop)]


def test_a_message_may_have_many_stop_sequences():
    asked = {"model": "agent", "max_tokens": 3, "messages": [{"role": "user", "content": "Hi"}]}

    def parsed(stops):
        return message_translation().parse(json.dumps(asked | {"stop_sequences": stops}).encode())

    assert parsed(list("abcde")).stop == list("abcde")
    for stops, field in (([""], "stop_sequences[0]"), (["a"] * 65, "stop_sequences")):
        with pytest.raises(ApiError, match=re.escape(f"{field}: ")) as refused:
            parsed(stops)
        assert refused.value.param == field


@pytest.mark.parametrize("limit", [0, -1])
def test_a_limit_of_no_tokens_is_refused_by_its_name(random_server, limit):
    said = post(
        random_server, "/v1/messages", {"model": "agent", "max_tokens": limit, "messages": [{"role": "user", "content": "Hi"}]}
    )
    assert (said.status_code, "tokens" in said.json()["error"]["message"]) == (400, True)
    refused = post(random_server, "/v1/responses", {"model": "agent", "input": "Hi", "max_output_tokens": limit})
    assert (refused.status_code, "max_completion" in refused.json()["error"]["message"]) == (400, False)


def test_logprobs_come_where_they_are_included(client):
    asked = {"model": "agent", "input": "Hi", "max_output_tokens": 3, "top_logprobs": 2}
    said = client.responses.create(**asked, include=["message.output_text.logprobs"])
    assert [len(one.top_logprobs) for one in said.output[0].content[0].logprobs] == [2, 2, 2]
    assert client.responses.create(**asked).output[0].content[0].logprobs == []


def test_responses_are_kept_until_they_are_deleted(client):
    first = client.responses.create(model="agent", input="Hi", max_output_tokens=2)
    assert client.responses.retrieve(first.id) == first
    client.responses.delete(first.id)
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(first.id)
    with pytest.raises(openai.BadRequestError, match="not kept here") as refused:
        client.responses.create(model="agent", input="Hi", previous_response_id=first.id)
    assert (refused.value.param, refused.value.code) == ("previous_response_id", "previous_response_not_found")
    unkept = client.responses.create(model="agent", input="Hi", max_output_tokens=2, store=False)
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(unkept.id)


def test_what_a_response_was_asked_with_is_listed(client):
    first = client.responses.create(model="agent", input="Hi", max_output_tokens=2)
    asked = [{"role": "user", "content": "And?"}]
    second = client.responses.create(model="agent", input=asked, previous_response_id=first.id, max_output_tokens=2)
    listed = client.responses.input_items.list(second.id, order="asc")
    assert [one.type for one in listed.data] == ["message"] * 3
    assert [one.content[0].text for one in listed.data] == ["Hi", first.output_text, "And?"]
    last = client.responses.input_items.list(second.id, limit=1)
    assert (last.data[0].content[0].text, last.has_more) == ("And?", True)
    assert [one.content[0].text for one in last] == ["And?", first.output_text, "Hi"]  # the client asks for the other pages
    for limit in (0, 101):
        with pytest.raises(openai.BadRequestError, match="limit"):
            client.responses.input_items.list(second.id, limit=limit)


def test_no_response_runs_in_the_background(random_server, client):
    said = client.responses.create(model="agent", input="Hi", max_output_tokens=2)
    with pytest.raises(openai.BadRequestError, match="is over"):
        client.responses.cancel(said.id)
    for ask in (client.responses.cancel, client.responses.input_items.list):
        with pytest.raises(openai.NotFoundError, match="no response 'resp_1' is kept here"):
            ask("resp_1")
    for path in ("input_tokens", "compact", said.id):
        refused = post(random_server, f"/v1/responses/{path}", {"model": "agent", "input": "one"})
        assert (refused.status_code, refused.json()["error"]["code"]) == (404, "not_found")


def test_obfuscation_may_be_asked_for(client):
    asked = {"model": "agent", "stream": True, "stream_options": {"include_obfuscation": True}}
    said = [{"role": "user", "content": "Hi"}]
    assert list(client.chat.completions.create(**asked, messages=said, max_tokens=2))[-1].choices[0].finish_reason
    assert list(client.responses.create(**asked, input="Hi", max_output_tokens=2))[-1].type == "response.incomplete"


def test_feedback_names_an_answer_by_its_id(random_server, client):
    said = client.responses.create(model="agent", input="Hi", max_output_tokens=2)
    assert post(random_server, "/v1/feedback", {"response_id": said.id, "thumb": "up"}).status_code == 201


def test_either_header_carries_the_key(random_server):
    body = {"model": "agent", "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 1}
    tries = [{"x-api-key": KEY}, {"authorization": f"Bearer {KEY}"}, {"x-api-key": KEY, "authorization": "Bearer other"}]
    assert [httpx.post(f"{random_server.url}/v1/messages", json=body, headers=one).status_code for one in tries] == [200] * 3
    for headers in ({}, {"x-api-key": "other"}, {"authorization": KEY}):
        refused = httpx.post(f"{random_server.url}/v1/messages", json=body, headers=headers)
        assert (refused.status_code, refused.json()["error"]["type"]) == (401, "authentication_error")
        strictly(anthropic.types.ErrorResponse, refused.json())


@pytest.mark.parametrize(
    ("path", "body", "status", "param"),
    [
        ("/v1/responses", {"model": "agent"}, 400, "input"),
        ("/v1/responses", {"model": "other", "input": "Hi"}, 404, "model"),
        ("/v1/responses", {"model": "agent", "input": "Hi", "tools": [{"type": "web_search"}]}, 400, None),
        ("/v1/responses", {"model": "agent", "input": "Hi", "temperature": 3}, 400, "temperature"),
        ("/v1/responses", {"model": "agent", "input": "word " * 9000}, 400, "messages"),
        ("/v1/messages", {"model": "agent", "messages": [{"role": "user", "content": "Hi"}]}, 400, None),
        ("/v1/messages", {"model": "other", "max_tokens": 1, "messages": [{"role": "user", "content": "Hi"}]}, 404, None),
        ("/v1/messages", {"model": "agent", "max_tokens": 1, "messages": [{"role": "assistant", "content": "Hi"}]}, 400, None),
        ("/v1/messages/count_tokens", {"model": "agent", "messages": []}, 400, None),
        ("/v1/messages/nothing", {}, 404, None),
    ],
)
def test_refusals_have_the_form_of_their_interface(random_server, path, body, status, param):
    refused = post(random_server, path, body)
    assert refused.status_code == status
    if path == "/v1/responses":
        assert refused.json()["error"]["param"] == param
    else:
        strictly(anthropic.types.ErrorResponse, refused.json())


def parsed_response(**fields):
    body = {"model": "agent", "input": "Hi", "tools": [RESPONSE_TOOL]} | fields
    return response_translation(KeptResponses()).parse(json.dumps(body).encode())


def test_a_response_may_list_the_tools_that_may_be_called():
    allowed = {"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "stock"}]}
    assert parsed_response(tool_choice=allowed).choosing == parsed_response(tool_choice="required").choosing
    assert parsed_response(tool_choice=allowed | {"mode": "auto"}).choosing == parsed_response(tool_choice="auto").choosing
    for odd in ({"tools": [{"type": "mcp"}]}, {"tools": [{"type": "function", "name": "other"}]}, {"mode": "x"}, {"tools": None}):
        with pytest.raises(ApiError):
            parsed_response(tool_choice=allowed | odd)


def test_a_thought_that_nobody_can_read_is_an_empty_turn():
    thought = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "x"}
    said = [{"role": "user", "content": "a"}, thought, {"role": "user", "content": "b"}]
    assert [message.role for message in parsed_response(input=said).messages] == ["user", "assistant", "user"]


PICTURE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBOR"}}


def test_pictures_are_refused(random_server):
    asked = {"model": "agent", "max_tokens": 1, "messages": [{"role": "user", "content": [PICTURE]}]}
    assert post(random_server, "/v1/messages", asked).status_code == 400
    shown = [{"role": "user", "content": [{"type": "input_image", "image_url": "data:image/png;base64,iVBOR"}]}]
    assert post(random_server, "/v1/responses", {"model": "agent", "input": shown}).status_code == 400


WORDS = ["", "user", "assistant", "text", "thinking", "tool_use", "tool_result", "image", "function", "message", "function_call"]
NAMES = [
    "type",
    "role",
    "content",
    "text",
    "thinking",
    "id",
    "name",
    "input",
    "tool_use_id",
    "source",
    "output",
    "call_id",
    "schema",
    "format",
]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.floats() | st.sampled_from([*WORDS, "\ud800"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=4),
    max_leaves=8,
)
FIELDS = {
    *(
        "system",
        "messages",
        "max_tokens",
        "stop_sequences",
        "tools",
        "tool_choice",
        "metadata",
        "output_config",
        "thinking",
    ),
    *("input", "instructions", "text", "reasoning", "include", "top_logprobs", "max_output_tokens", "previous_response_id"),
    *("temperature", "stream", "parallel_tool_calls", "store", "user", "stream_options"),
}
BLOCK = st.fixed_dictionaries({"type": st.sampled_from(WORDS)}, optional=dict.fromkeys(NAMES[3:], JSON))
MESSAGE = st.fixed_dictionaries(
    {"role": st.sampled_from(["user", "assistant", "system", ""]), "content": JSON | st.lists(BLOCK, max_size=3)}
)
BODY = st.fixed_dictionaries(
    {"model": st.just("agent")},
    optional=dict.fromkeys(sorted(FIELDS), JSON)
    | {"messages": st.lists(MESSAGE | JSON, max_size=3), "input": st.lists(MESSAGE | BLOCK | JSON, max_size=3) | JSON},
)


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(BODY, st.sampled_from(["responses", "messages", "count"]))
def test_whatever_a_client_sends_is_parsed_or_refused(body, which):
    translation = {
        "responses": response_translation(KeptResponses()),
        "messages": message_translation(),
        "count": counted_translation(),
    }[which]
    try:
        request = translation.parse(json.dumps({"max_tokens": 5} | body).encode())
    except ApiError as error:
        refused = error
    else:
        assert request.messages
        writer = translation.writer()
        writer.add({"choices": [{"message": {"content": "Hi"}, "finish_reason": "length"}]})
        writer.end()
        assert (response if which == "responses" else message)(json.loads(json.dumps(writer.whole(), allow_nan=False)))
        return
    assert refused.status == 400
