"""What the server says, by the types of the published clients: chats and texts, whole and as chunks, models, errors."""

from __future__ import annotations

import json
from typing import Any

import anthropic
import anthropic.types
import httpx
import openai.types
import pytest

from tests.serving.conftest import KEY, TOOLS, Running
from tests.wire.dialects.strictly import chunk, completion, error, strictly, text_chunk, text_completion

KEYED = {"authorization": f"Bearer {KEY}"}
CLAUDE = {"x-api-key": KEY, "anthropic-version": "2023-06-01"}
TOOL = TOOLS[0].as_function()
ASKED: dict[str, Any] = {"model": "agent", "messages": [{"role": "user", "content": "How many mugs?"}], "max_tokens": 60}
FORCED = {"tools": [TOOL], "tool_choice": "required", "temperature": 0}
OWN = {"version", "digest", "policy_version", "context_length", "tools", "preamble", "environment"}  # of clawpipe's model cards


def sent(server: Running, path: str, body: dict[str, Any]) -> httpx.Response:
    return httpx.post(f"{server.url}{path}", json=body, headers=KEYED, timeout=60)


def chunks(server: Running, path: str, body: dict[str, Any]) -> list[dict[str, Any]]:
    told = sent(server, path, body | {"stream": True, "stream_options": {"include_usage": True}}).text.split("\n\n")
    assert told[-2:] == ["data: [DONE]", ""]
    return [json.loads(line.removeprefix("data: ")) for line in told[:-2]]


@pytest.mark.parametrize("more", [{}, {"tools": [TOOL], "temperature": 0}, FORCED, {"logprobs": True, "top_logprobs": 2}, {"n": 2}])
def test_chats_have_the_published_fields(parrot_server, more):
    whole = completion(sent(parrot_server, "/v1/chat/completions", ASKED | more).json())
    parts = [chunk(one) for one in chunks(parrot_server, "/v1/chat/completions", ASKED | more)]
    assert {choice.index for choice in whole.choices} == {choice.index for part in parts for choice in part.choices}
    assert parts[-1].usage is not None
    assert whole.usage is not None
    assert parts[-1].usage.prompt_tokens == whole.usage.prompt_tokens
    assert bool(whole.choices[0].message.tool_calls) == ("tools" in more)


def test_texts_have_the_published_fields(random_server):
    asked = {"model": "agent", "prompt": ["a", "b"], "max_tokens": 3, "logprobs": 2}
    assert len(text_completion(sent(random_server, "/v1/completions", asked).json()).choices) == 2
    assert all(text_chunk(one).id for one in chunks(random_server, "/v1/completions", asked))


def test_errors_have_the_published_fields(random_server):
    for path, body in (("/v1/chat/completions", {}), ("/v1/responses", {"model": "agent"}), ("/v1/nowhere", {})):
        assert error(sent(random_server, path, body).json()).message


def test_models_have_the_fields_of_the_clients_interface(random_server):
    for path in ("/v1/models", "/v1/models/agent"):
        [own, claudes] = (httpx.get(f"{random_server.url}{path}", headers=headers).json() for headers in (KEYED, CLAUDE))
        card, claude = (body["data"][0] if path == "/v1/models" else body for body in (own, claudes))
        assert strictly(openai.types.Model, {name: value for name, value in card.items() if name not in OWN}).id == "agent"
        info = strictly(anthropic.types.ModelInfo, claude)
        assert (info.id, info.display_name, info.max_input_tokens, info.lifecycle) == ("agent", "agent", 1024, "active")
        assert int(info.created_at.timestamp()) == card["created"]


def test_anthropics_client_lists_models_and_reads_ids(random_server):
    with anthropic.Anthropic(base_url=random_server.url, api_key=KEY, max_retries=0) as client:
        assert [model.id for model in client.models.list()] == ["agent"]
        said = client.messages.create(model="agent", max_tokens=1, messages=[{"role": "user", "content": "Hi"}])
        assert (said._request_id or "").startswith("req_")
        with pytest.raises(anthropic.BadRequestError) as refused:
            client.messages.create(model="agent", max_tokens=0, messages=[])
        assert (refused.value.request_id or "").startswith("req_")
        counted = client.messages.count_tokens(model="agent", messages=[{"role": "user", "content": "Hi"}])
    assert strictly(anthropic.types.MessageTokensCount, counted.model_dump()).input_tokens > 0
