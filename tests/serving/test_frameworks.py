"""What frameworks send by default: forced and strict tools, labels, several prompts, compressed bodies, heads of pages."""

import gzip
import json
import zlib

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from clawpipe.core.conversation.messages import ToolSpec
from clawpipe.serve.serving.answering import MAX_BODY
from clawpipe.serve.serving.turn import Rules, WithTools

QUESTION = {"role": "user", "content": "How many mugs?"}
HEADERS = {"authorization": "Bearer sk-a-test-key"}
STOCK = {"type": "object", "properties": {"item": {"enum": ["mug", "pen"]}}, "required": ["item"], "additionalProperties": False}
NAMED = {"type": "function", "function": {"name": "stock"}}
NOW = {"type": "function", "function": {"name": "now"}}


def tool(name="stock", strict=True, **parameters):
    return {"type": "function", "function": {"name": name, "strict": strict, "parameters": STOCK | parameters}}


@pytest.fixture
def post(random_server):
    """post(**fields): the answer of the random model; no draw of it would be a call."""

    def send(path="/v1/chat/completions", headers=None, content=None, **fields):
        body = {"model": "agent", "max_tokens": 150, "temperature": 1, "seed": 3} | fields
        body |= {"messages": [QUESTION]} if "chat" in path and "messages" not in fields else {}
        data = json.dumps(body).encode() if content is None else content
        return httpx.post(random_server.url + path, content=data, headers=HEADERS | (headers or {}), timeout=60)

    return send


@pytest.mark.parametrize(
    "choice", ["required", NAMED, {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [NAMED]}}]
)
def test_a_forced_call_is_one_that_fits(post, choice):
    answer = post(tools=[tool(), tool("now")], tool_choice=choice, parallel_tool_calls=False, logprobs=True)
    [made] = answer.json()["choices"]
    [call] = made["message"]["tool_calls"]
    assert json.loads(call["function"]["arguments"])["item"] in ("mug", "pen")
    assert call["function"]["name"] in (("stock", "now") if choice == "required" else ("stock",))
    assert made["finish_reason"] == "tool_calls"
    assert made["logprobs"]["kind"] == answer.headers["x-clawpipe-logprobs"] == "none"
    assert answer.headers["x-clawpipe-constrained"] == "tool_choice"


def test_a_free_draw_is_not_marked(post):
    answer = post(tools=[tool()], max_tokens=4, logprobs=True)
    assert "x-clawpipe-constrained" not in answer.headers
    assert answer.headers["x-clawpipe-logprobs"] == "raw"


def test_a_schema_beside_tools_is_json_or_a_call(post):
    form = {"type": "json_schema", "json_schema": {"name": "n", "schema": STOCK}}
    seen = set()
    for seed in range(8):
        answer = post(tools=[tool()], response_format=form, seed=seed)
        message = answer.json()["choices"][0]["message"]
        seen.add("call" if message.get("tool_calls") else "json")
        assert message.get("tool_calls") or json.loads(message["content"])["item"] in ("mug", "pen")
        assert answer.headers["x-clawpipe-constrained"] == "response_format"
    assert seen == {"call", "json"}


def test_a_call_that_misses_a_strict_schema_is_named():
    tools = [ToolSpec("stock", "", {"type": "object", "properties": {"item": {"type": "string", "maxLength": 2}}})]
    text = 'stock(item="mug")'
    for strict, misfits in ((frozenset({"stock"}), 1), (frozenset(), 0)):
        outcome = WithTools("pythonic", tools, 0, Rules(frozenset({"stock"}), strict)).outcome(text)
        assert (len(outcome.calls), len(outcome.misfits)) == (1, misfits)
        assert all("item" in misfit for misfit in outcome.misfits)


@pytest.mark.parametrize(
    ("style", "call"),
    [
        ("pythonic", 'stock(item="a)b")'),
        ("hermes", '<tool_call>\n{"name": "stock", "arguments": {"item": "{}"}}'),
        ("llama3", '{"name": "stock", "parameters": {"item": "mug"}}'),
        ("qwen3-coder", "<tool_call>\n<function=stock>\n<parameter=item>\nmug\n</parameter>\n</function>"),
    ],
)
def test_the_first_call_ends_a_turn_of_one(style, call):
    reading = WithTools(style, [ToolSpec("stock", "", {"item": "string"})], 0, Rules(frozenset({"stock"}), several=False))
    over = [end for end in range(1, len(call) + 1) if reading.is_over(call[:end], call[end - 1])]
    assert over == [len(call)]


def test_only_allowed_tools_are_called():
    tools = [ToolSpec("stock", "", {"item": "string"}), ToolSpec("now", "", {})]
    reading = WithTools("pythonic", tools, 0, Rules(frozenset({"now"})))
    assert reading.outcome('stock(item="mug")') == ('stock(item="mug")', (), ())
    assert reading.outcome("now()").calls


def test_labels_change_nothing(post):
    labels = {
        "store": True,
        "metadata": {"a": "b"},
        "user": "u",
        "service_tier": "flex",
        "prediction": {"type": "content"},
    }
    plain, labelled = post(max_tokens=6).json(), post(max_tokens=6, parallel_tool_calls=True, tool_choice="auto", **labels).json()
    assert labelled["choices"] == plain["choices"]


def test_several_prompts_get_answers_of_their_own(post):
    alone = [post("/v1/completions", prompt=prompt, seed=3 + place).json() for place, prompt in enumerate(("Once", "Twice"))]
    both = post("/v1/completions", prompt=["Once", "Twice"], return_token_ids=True).json()
    assert [choice["index"] for choice in both["choices"]] == [0, 1]
    assert [choice["text"] for choice in both["choices"]] == [one["choices"][0]["text"] for one in alone]
    assert both["usage"]["prompt_tokens"] == sum(one["usage"]["prompt_tokens"] for one in alone)
    assert len(both["choices"][1]["prompt_token_ids"]) == len("Twice")
    ids = post("/v1/completions", prompt=[both["choices"][0]["prompt_token_ids"], [1, 2]], n=2).json()
    assert [choice["index"] for choice in ids["choices"]] == [0, 1, 2, 3]
    assert post("/v1/completions", prompt=["x"] * 33).json()["error"]["param"] == "prompt"


def test_usage_says_what_had_been_computed(post):
    long = [{"role": "user", "content": "A sentence that two requests have in common, long enough to be kept. " * 3}]
    first, second = (post(messages=long, max_tokens=2).json()["usage"] for _ in range(2))
    assert second["prompt_tokens_details"]["cached_tokens"] == first["prompt_tokens"] - 1
    assert second["completion_tokens_details"] == {"reasoning_tokens": 0}


@pytest.mark.parametrize("compress", [gzip.compress, zlib.compress])
def test_a_compressed_body_is_read(post, compress):
    name = "gzip" if compress is gzip.compress else "deflate"
    body = json.dumps({"model": "agent", "messages": [QUESTION], "max_tokens": 2}).encode()
    assert post(content=compress(body), headers={"content-encoding": name}).status_code == 200
    bomb = post(content=compress(b" " * (MAX_BODY + 1)), headers={"content-encoding": name})
    assert (bomb.status_code, bomb.json()["error"]["code"]) == (413, "request_too_large")
    assert post(content=compress(body)[:-9], headers={"content-encoding": name}).status_code == 400
    assert post(content=body, headers={"content-encoding": name}).status_code == 400
    refused = post(content=body, headers={"content-encoding": "br"})
    assert (refused.status_code, refused.headers["accept-encoding"]) == (415, "gzip, deflate")


def test_every_answer_has_an_id_and_the_pace(post, random_server):
    answer = post(max_tokens=1, headers={"x-request-id": "mine-1"})
    assert answer.headers["x-request-id"] == "mine-1"
    assert int(answer.headers["x-ratelimit-remaining-requests"]) < int(answer.headers["x-ratelimit-limit-requests"])
    for odd in ("", "a b", "x" * 200):
        assert post(max_tokens=0, headers={"x-request-id": odd}).headers["x-request-id"].startswith("req_")
    assert httpx.get(f"{random_server.url}/nowhere").headers["x-request-id"].startswith("req_")


def test_the_head_of_a_page_that_can_be_read(random_server):
    for path, status in (("/v1/models", 200), ("/v1/models/agent", 200), ("/healthz", 200), ("/v1/models/a/b", 404), ("/x", 404)):
        head, page = (httpx.request(method, random_server.url + path, headers=HEADERS) for method in ("HEAD", "GET"))
        assert (head.status_code, head.content, page.status_code) == (status, b"", status)
        assert head.headers["content-length"] == page.headers["content-length"]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
FIELDS = ["tools", "tool_choice", "parallel_tool_calls", "response_format", "messages", "prompt", "n", "stop", "stream_options"]
KEYWORDS = st.sampled_from(
    ["type", "properties", "items", "anyOf", "enum", "const", "$ref", "required", "minItems", "maxItems", "pattern", "allOf"]
)
SCHEMAS = st.dictionaries(KEYWORDS, JSON | st.sampled_from(["string", "object", "#/$defs/A", ["null", "integer"]]), max_size=4)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    fields=st.dictionaries(st.sampled_from(FIELDS), JSON, max_size=3),
    schema=SCHEMAS,
    form=st.sampled_from(["tool", "format", "none"]),
    path=st.sampled_from(["/v1/chat/completions", "/v1/completions"]),
)
def test_no_request_fails_the_server(post, fields, schema, form, path):
    if form == "tool":
        fields |= {"tools": [tool(properties={"item": schema})], "tool_choice": "required"}
    elif form == "format":
        fields |= {"response_format": {"type": "json_schema", "json_schema": {"schema": schema}}}
    answer = post(path, **{"max_tokens": 1} | fields)
    assert answer.status_code < 500, answer.text
    assert answer.status_code == 200 or "\n" not in answer.json()["error"]["message"]
