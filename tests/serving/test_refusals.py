"""Refused requests and their errors."""

import json

import httpx
import openai
import pytest

from clawpipe.serve.serving.answering import MAX_BODY

QUESTION = {"role": "user", "content": "Hello"}
CALL = {"id": "c1", "type": "function", "function": {"name": "stock", "arguments": "{}"}}


def tool(name="stock", **parameters):
    parameters = {"type": "object", "properties": {"item": {"type": "string"}}, "required": ["item"]} | parameters
    return {"type": "function", "function": {"name": name, "parameters": parameters}}


@pytest.fixture
def post(random_server):
    """post(body, key): the raw answer."""

    def send(body, key="sk-a-test-key"):
        content = body if isinstance(body, bytes) else json.dumps(body)
        headers = {"authorization": f"Bearer {key}"} if key else {}
        return httpx.post(f"{random_server.url}/v1/chat/completions", content=content, headers=headers, timeout=60)

    return send


@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER", "bearer "])
def test_the_name_of_the_scheme_has_no_case(random_server, scheme):
    models = f"{random_server.url}/v1/models"
    assert httpx.get(models, headers={"authorization": f"{scheme} sk-a-test-key"}).status_code == 200
    for wrong in (f"{scheme} sk-a-test", "Basic sk-a-test-key", "sk-a-test-key", f"{scheme} sk-\xe4"):
        assert httpx.get(models, headers={"authorization": wrong.encode("latin-1")}).status_code == 401


def test_pages_of_other_sites_and_names_are_not_answered(random_server):
    port = random_server.url.rpartition(":")[2]
    for path in ("/healthz", "/v1/models"):
        for headers in ({"origin": "http://evil.test"}, {"origin": "http://127.0.0.1:1"}, {"host": f"evil.test:{port}"}):
            sent = headers | {"authorization": "Bearer sk-a-test-key"}
            assert httpx.get(random_server.url + path, headers=sent).status_code == 403
            assert httpx.options(random_server.url + path, headers=sent).status_code == 403
        own = {"origin": random_server.url, "authorization": "Bearer sk-a-test-key"}
        assert httpx.get(random_server.url + path, headers=own).status_code == 200


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"min_tokens": 1}, "min_tokens"),  # vLLM knows it
        ({"functions": [{"name": "stock"}]}, "functions"),
        ({"bad_words": ["mug"]}, "bad_words"),
        ({"add_generation_prompt": False}, "add_generation_prompt"),
        ({"n": 33}, "n"),
        ({"top_k": -2}, "top_k"),
        ({"presence_penalty": 2.5}, "presence_penalty"),
        ({"repetition_penalty": 0}, "repetition_penalty"),
        ({"temperature": 2.5}, "temperature"),
        ({"temperature": "1"}, "temperature"),
        ({"top_p": 0}, "top_p"),
        ({"max_completion_tokens": 0}, "max_completion_tokens"),
        ({"max_completion_tokens": True}, "max_completion_tokens"),
        ({"max_tokens": 3}, "max_tokens"),  # beside max_completion_tokens
        ({"stop": ["a"] * 65}, "stop"),
        ({"stop": ""}, "stop[0]"),
        ({"stop": ["a", "b" * 257]}, "stop[1]"),
        ({"seed": 2**63}, "seed"),
        ({"top_logprobs": 2}, "top_logprobs"),
        ({"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
        ({"logit_bias": {"five": 1}}, "logit_bias"),
        ({"logit_bias": {"100000": 1}}, "logit_bias"),
        ({"response_format": {"type": "grammar"}}, "response_format.type"),
        ({"response_format": {"type": "json_schema", "json_schema": {}}}, "response_format"),
        ({"stream_options": {"include_usage": True}}, "stream_options"),
        ({"tool_choice": "required"}, "tool_choice"),  # without tools
        ({"tools": [tool()], "tool_choice": {"type": "function", "function": {"name": "shop"}}}, "tool_choice"),
        ({"tools": [tool()], "tool_choice": {"type": "function"}}, "tool_choice"),
        ({"tools": [tool()], "tool_choice": {"type": "custom"}}, "tool_choice.type"),
        ({"tools": [tool(properties={"item": {"not": {"type": "null"}}})], "tool_choice": "required"}, "tool_choice"),
        ({"tools": [{"type": "custom", "custom": {"name": "x"}}]}, "tools[0].type"),
        ({"web_search_options": {}}, "web_search_options"),
        ({"tools": [tool(), tool()]}, "tools[1].function.name"),
        ({"tools": [tool("get-stock")]}, "tools[0].function.name"),
        ({"tools": [tool(type="array")]}, "tools[0].function.parameters"),
        ({"tools": [tool(properties={"item": {"type": "strin"}})]}, "tools[0].function.parameters"),
        ({"tools": [tool(properties={"item": {"$ref": "http://127.0.0.1/item.json"}})]}, "tools[0].function.parameters"),
        ({"tools": [tool(required=[], description="x" * 200_000)]}, "messages"),
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "function", "content": "x"}]}, "messages[0].role"),
        ({"messages": [{"role": "user"}]}, "messages[0].content"),
        ({"tools": [tool("a" * 129)]}, "tools[0].function.name"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]}, "messages[0].content[0].type"),
        ({"messages": [QUESTION | {"tool_calls": [CALL]}]}, "messages[0].tool_calls"),
        ({"messages": [{"role": "tool", "content": "57", "tool_call_id": "c9"}]}, "messages[0].tool_call_id"),
        ({"messages": [{"role": "tool", "content": "57"}]}, "messages[0].tool_call_id"),
        ({"messages": [QUESTION | {"refusal": "No."}]}, "messages[0].refusal"),
        ({"messages": [{"role": "assistant", "content": [{"type": "refusal"}]}, QUESTION]}, "messages[0].content[0].text"),
    ],
)
def test_what_is_not_supported_is_refused_by_name(post, fields, param):
    answer = post({"model": "agent", "messages": [QUESTION], "max_completion_tokens": 2} | fields)
    error = answer.json()["error"]
    assert (answer.status_code, error["type"], error["param"]) == (400, "invalid_request_error", param)
    assert param.split(".")[-1].split("[")[0] in error["message"]
    assert answer.headers["x-clawpipe-model-version"] == "3"


def test_values_that_change_nothing_are_taken(post):
    fields = {
        **{"min_tokens": 0, "mirostat": 0, "ignore_eos": False, "use_beam_search": False, "length_penalty": 1.0, "typical_p": 1.0},
        **{"functions": [], "bad_words": [], "stop_token_ids": [], "allowed_token_ids": [], "add_generation_prompt": True},
    }
    assert post({"model": "agent", "messages": [QUESTION], "max_completion_tokens": 2} | fields).status_code == 200


@pytest.mark.parametrize(
    "said", [{"content": None, "refusal": "I cannot."}, {"content": [{"type": "refusal", "refusal": "I cannot."}]}]
)
def test_a_refusal_in_a_history_is_a_text(post, said):
    def prompt(message):
        body = {"model": "agent", "messages": [QUESTION, {"role": "assistant"} | message, QUESTION]}
        return post(body | {"max_completion_tokens": 1, "return_token_ids": True}).json()["prompt_token_ids"]

    assert prompt(said) == prompt({"content": "I cannot."})


@pytest.mark.parametrize("arguments", ["", " ", None, "null", "[1]", "{", '{"a": 1}{"b": 2}', '{"a": "\\ud800"}'])
def test_a_history_with_odd_arguments_is_answered(post, arguments):
    """Another model may have made the call in the middle of a session."""
    made = {"role": "assistant", "content": None, "tool_calls": [CALL | {"function": {"name": "stock", "arguments": arguments}}]}
    messages = [QUESTION, made, {"role": "tool", "tool_call_id": "c1", "content": "57"}]
    assert post({"model": "agent", "messages": messages, "tools": [tool()], "max_completion_tokens": 2}).status_code == 200


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[1]",
        b'"x"',
        b'{"model": "agent", "messages": [{"role": "user", "content": "\\ud800"}]}',
        b"\xff",
        b"[" * 100_000,
    ],
)
def test_a_body_that_is_no_request(post, body):
    answer = post(body)
    assert answer.status_code == 400
    assert answer.json()["error"]["message"]


def test_a_field_that_is_refused_reaches_the_clients_exception(ask):
    with pytest.raises(openai.BadRequestError, match="ignore_eos") as caught:
        ask(extra_body={"ignore_eos": True})
    assert (caught.value.param, caught.value.code) == ("ignore_eos", "unsupported_parameter")


def test_another_model_is_not_found(ask, client):
    with pytest.raises(openai.NotFoundError, match="'gpt-9' is not served here"):
        ask(model="gpt-9")
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("gpt-9")


def test_what_does_not_fit_the_context(ask):
    with pytest.raises(openai.BadRequestError, match=r"\d+ tokens of messages and 1001 of answer .* 1024") as caught:
        ask(max_completion_tokens=1001)
    assert caught.value.code == "context_length_exceeded"
    with pytest.raises(openai.BadRequestError, match="context of 1024 tokens"):
        ask("x" * 2000, max_completion_tokens=None)


@pytest.mark.parametrize("key", ["wrong", "sk-a-test-kez", "sk-a-test-key2", "schlüssel".encode("latin-1").decode("latin-1")])
def test_a_wrong_key(random_server, key):
    headers = [(b"authorization", f"Bearer {key}".encode("latin-1"))]
    answer = httpx.get(f"{random_server.url}/v1/models", headers=headers)
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"] == "Bearer"


def test_the_clients_exception_for_a_wrong_key(random_server):
    with random_server.client("wrong") as client, pytest.raises(openai.AuthenticationError):
        client.models.list()


def test_no_key_is_refused_before_the_body_is_read(post):
    assert post(b"{", key=None).status_code == 401


def test_health_is_open(random_server):
    answer = httpx.get(f"{random_server.url}/healthz")
    assert answer.json() == {"status": "ok", "model": "agent", "version": "3", "digest": "d" * 64, "policy_version": "f" * 16}


@pytest.mark.parametrize("chunked", [False, True])
def test_a_body_that_is_too_large(random_server, chunked):
    body = b" " * (MAX_BODY + 1)
    content = iter([body[:-1], b" "]) if chunked else body
    headers = {"authorization": "Bearer sk-a-test-key"}
    answer = httpx.post(f"{random_server.url}/v1/chat/completions", content=content, headers=headers, timeout=60)
    assert answer.status_code == 413
    assert answer.json()["error"]["code"] == "request_too_large"


def test_other_paths_and_methods_answer_in_the_same_form(random_server):
    answer = httpx.get(f"{random_server.url}/v1/embeddings")
    assert (answer.status_code, answer.json()["error"]["type"]) == (404, "invalid_request_error")
    assert httpx.get(f"{random_server.url}/v1/chat/completions").status_code == 405
    assert httpx.get(f"{random_server.url}/openapi.json").status_code == 404
