"""Responses and Anthropic messages at the gateway, before an engine that speaks chat completions and says its tokens."""

from __future__ import annotations

from collections.abc import Iterator

import anthropic
import httpx
import pytest

from tests.gateway.conftest import KEY, Running
from tests.wire.dialects.strictly import strictly

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


def test_refusals_have_anthropics_form(gateway):
    url, body = f"{gateway.url}/v1/messages", {"model": "agent", "messages": [{"role": "user", "content": "Hi"}]}
    refused = [httpx.post(url, json=body, headers={"x-api-key": key}) for key in ("other", KEY)]
    missing = httpx.post(url, json=body | {"model": "missing", "max_tokens": 2}, headers={"x-api-key": KEY})
    assert [one.status_code for one in (*refused, missing)] == [401, 400, 404]
    for one in (*refused, missing):
        strictly(anthropic.types.ErrorResponse, one.json())
