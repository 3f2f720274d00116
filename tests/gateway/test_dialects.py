"""Responses and Anthropic messages at the gateway, before an engine that speaks chat completions and says its tokens."""

from __future__ import annotations

from collections.abc import Iterator

import anthropic
import httpx
import pytest

from tests.gateway.conftest import KEY, Running
from tests.wire.dialects.strictly import chunk, strictly, unknown

LOGPROBS = "message.output_text.logprobs"
TOOL = {"name": "look", "input_schema": {"type": "object"}}


@pytest.fixture
def claude(gateway: Running) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(base_url=gateway.url, api_key=KEY, max_retries=0, timeout=60) as client:
        yield client


def turn_of(gateway: Running, response_id: str):
    [turn] = [turn for turn in gateway.turns() if turn.response_id == response_id]
    return turn


def test_messages_are_captured_with_their_tokens(gateway, claude):
    asked = [{"role": "user", "content": "How many mugs"}]
    first = claude.messages.create(model="agent", max_tokens=9, system="Be short.", messages=asked, tools=[TOOL])
    text, call = first.content
    assert (text.text, call.name, call.input, first.stop_reason) == ("How many mugs ", "look", {"at": 1}, "tool_use")
    result = {"type": "tool_result", "tool_use_id": call.id, "content": "no such shelf", "is_error": True}
    history = [*asked, {"role": "assistant", "content": first.content}, {"role": "user", "content": [result]}]
    second = claude.messages.create(model="agent", max_tokens=9, system="Be short.", messages=history, tools=[TOOL])
    one, two = (turn_of(gateway, answer.id) for answer in (first, second))
    assert (one.api, one.answers[0].token_ids, one.logprobs_kind) == ("messages", [100, 101, 102], "tempered")
    assert two.session == one.session
    failed = {"role": "tool", "tool_call_id": call.id, "content": "no such shelf", "is_error": True}
    assert two.request["messages"][-1] == failed


def test_streams_of_messages_and_responses_keep_their_tokens(gateway, claude):
    with claude.messages.stream(model="agent", max_tokens=9, messages=[{"role": "user", "content": "one two"}]) as stream:
        said = stream.get_final_message()
    assert (said.content[0].text, said.usage.output_tokens) == ("one two ", 2)
    assert turn_of(gateway, said.id).answers[0].token_ids == [100, 101]
    with gateway.client() as client, client.responses.stream(model="agent", input="three four") as events:
        response = events.get_final_response()
    assert (response.output_text, response.usage.output_tokens) == ("three four ", 2)
    assert turn_of(gateway, response.id).answers[0].token_ids == [100, 101]


@pytest.mark.parametrize(("include", "tokens"), [(None, 0), (["reasoning.encrypted_content"], 0), ([LOGPROBS], 2)])
def test_logprobs_of_a_response_are_for_who_asked(gateway, include, tokens):
    asked = {"model": "agent", "input": "one two", "include": include}
    with gateway.client() as client:
        whole = client.responses.create(**asked)
        events = list(client.responses.create(**asked, stream=True))
    said = [whole.output[0].content[0].logprobs, events[-1].response.output[0].content[0].logprobs]
    told = [one for event in events if event.type == "response.output_text.delta" for one in event.logprobs]
    assert [len(one) for one in (*said, told)] == [tokens] * 3
    assert turn_of(gateway, whole.id).answers[0].token_ids == [100, 101]


def test_refusals_have_anthropics_form(gateway):
    url, body = f"{gateway.url}/v1/messages", {"model": "agent", "messages": [{"role": "user", "content": "Hi"}]}
    refused = [httpx.post(url, json=body, headers={"x-api-key": key}) for key in ("other", KEY)]
    missing = httpx.post(url, json=body | {"model": "missing", "max_tokens": 2}, headers={"x-api-key": KEY})
    assert [one.status_code for one in (*refused, missing)] == [401, 400, 404]
    for one in (*refused, missing):
        strictly(anthropic.types.ErrorResponse, one.json())


def test_tokens_are_counted_by_a_chat_where_there_is_no_route(gateway, fake, claude):
    before = len(gateway.turns())
    asked = {"model": "agent", "system": "Be short.", "messages": [{"role": "user", "content": "How many mugs"}]}
    counted = httpx.post(
        f"{gateway.url}/v1/messages/count_tokens", json=asked | {"tools": [TOOL]}, headers={"x-api-key": KEY}
    ).json()
    assert strictly(anthropic.types.MessageTokensCount, counted).input_tokens == 2  # the fake has one for each message
    assert claude.messages.count_tokens(**asked, tool_choice={"type": "auto"}).input_tokens == 2
    sent = fake.asked()[-1]["body"]
    assert (sent["max_completion_tokens"], [one["role"] for one in sent["messages"]]) == (1, ["system", "user"])
    assert len(gateway.turns()) == before


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"messages": []}, 400),
        ({"messages": [{"role": "user", "content": [{"type": "document"}]}]}, 400),
        ({"model": "missing", "messages": [{"role": "user", "content": "x"}]}, 404),
    ],
)
def test_what_cannot_be_counted_is_refused_in_form(gateway, body, status):
    path, headers = f"{gateway.url}/v1/messages/count_tokens", {"x-api-key": KEY, "x-request-id": "mine-2"}
    refused = httpx.post(path, json={"model": "agent"} | body, headers=headers)
    assert (refused.status_code, refused.headers["request-id"], refused.headers["x-request-id"]) == (status, "mine-2", "mine-2")
    strictly(anthropic.types.ErrorResponse, refused.json())


def test_models_are_listed_for_either_client(gateway, claude):
    [listed] = claude.models.list()
    raw = httpx.get(f"{gateway.url}/v1/models", headers={"x-api-key": KEY, "anthropic-version": "2023-06-01"}).json()["data"][0]
    assert (strictly(anthropic.types.ModelInfo, raw).id, listed.id, listed.type) == ("agent", "agent", "model")
    with gateway.client() as client:
        assert [model.object for model in client.models.list()] == ["model"]


def test_the_gateways_own_questions_leave_no_field_behind(gateway):
    parts = gateway.ask("one two", stream=True)
    assert {name for part in parts for name in unknown(part)} == set()
    assert set(unknown(gateway.ask("one two"))) == {".choices[0].stop_reason"}  # the engine's
    assert all(chunk(part.model_dump(exclude_unset=True) | {"choices": []}).id for part in parts)
