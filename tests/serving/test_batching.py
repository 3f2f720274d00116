"""Many requests at once, several answers to one, and what is told of their tokens."""

import json
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from clawpipe.core.conversation.messages import Message
from clawpipe.model.engines.base import Sampling
from clawpipe.model.policy.renderer import Renderer

SCHEMA = {
    "type": "object",
    "properties": {"item": {"enum": ["mug", "pen"]}, "count": {"type": "integer", "minimum": 0, "maximum": 99}},
    "required": ["item", "count"],
    "additionalProperties": False,
}


ASKED = [{"role": "user", "content": "Hello"}]


@pytest.fixture
def post(random_server):
    def send(**fields):
        body = {"model": "agent", "messages": ASKED, "max_tokens": 12} | fields
        headers = {"authorization": "Bearer sk-a-test-key"}
        return httpx.post(f"{random_server.url}/v1/chat/completions", json=body, headers=headers, timeout=60)

    return send


def streamed(answer):
    lines = [line.removeprefix("data: ") for line in answer.text.splitlines() if line]
    assert lines[-1] == "[DONE]"
    return [json.loads(line) for line in lines[:-1]]


def test_requests_get_the_same_answers_together_and_alone(ask):
    """Sampled and greedy ones, with and without settings of their own."""
    settings = [{"temperature": 0}, {"temperature": 0.8, "seed": 1}, {"temperature": 1, "seed": 2, "top_p": 0.5}]
    settings += [
        {"seed": 3, "extra_body": {"top_k": 5}},
        {"seed": 4, "presence_penalty": 1.5},
        {"seed": 5, "logit_bias": {"70": 9}},
    ]
    asked = [(f"Question {number}", settings[number % 6]) for number in range(24)]
    alone = [ask(content, logprobs=True, **more) for content, more in asked]
    with ThreadPoolExecutor(24) as clients:
        together = list(clients.map(lambda each: ask(each[0], logprobs=True, **each[1]), asked))
    for one, other in zip(alone, together, strict=True):
        assert one.choices[0].message == other.choices[0].message
        pairs = zip(one.choices[0].logprobs.content, other.choices[0].logprobs.content, strict=True)
        assert all(a.logprob == pytest.approx(b.logprob, abs=1e-4) for a, b in pairs)


def test_several_answers_are_those_of_the_next_seeds(ask):
    several = ask(n=3, seed=7, temperature=1, logprobs=True)
    single = [ask(seed=7 + index, temperature=1, logprobs=True).choices[0] for index in range(3)]
    assert [choice.index for choice in several.choices] == [0, 1, 2]
    assert [choice.message for choice in several.choices] == [choice.message for choice in single]
    assert several.usage.completion_tokens == sum(ask(seed=7 + index, temperature=1).usage.completion_tokens for index in range(3))
    chunks = list(ask(n=3, seed=7, temperature=1, stream=True))
    for index, choice in enumerate(several.choices):
        own = [part for chunk in chunks for part in chunk.choices if part.index == index]
        assert "".join(part.delta.content or "" for part in own) == choice.message.content
        assert own[-1].finish_reason == choice.finish_reason


@pytest.mark.parametrize("stop", [None, "a"])
@pytest.mark.parametrize("temperature", [0, 0.7])
def test_token_ids_and_log_probs_are_the_sampled_ones(post, engine, tokenizer, temperature, stop):
    """As vLLM answers, so that a gateway can capture a turn: each sampled token, with its log-prob at the sampling temperature."""
    prompt = Renderer(tokenizer, "pythonic", ()).prompt([Message("user", "Hello")])
    fields = {"temperature": temperature, "seed": 5, "logprobs": True, "return_token_ids": True, "max_tokens": 200, "stop": stop}
    answer = post(**fields)
    [choice] = answer.json()["choices"]
    sampled = engine.begin([prompt]).sample({0: 5}, Sampling(temperature, 200, (tokenizer.eos_token_id,)))[0]
    ids = choice["token_ids"]
    assert answer.json()["prompt_token_ids"] == prompt
    assert ids == sampled.ids[: len(ids)]
    assert stop is not None or ids == sampled.ids
    assert [entry["logprob"] for entry in choice["logprobs"]["content"]] == pytest.approx(sampled.logprobs[: len(ids)], abs=1e-4)
    assert answer.json()["usage"]["completion_tokens"] == len(ids)
    assert answer.headers["x-clawpipe-logprobs"] == "tempered"
    assert choice["logprobs"]["kind"] == "tempered"  # as the importer reads it
    chunks = streamed(post(**fields, stream=True))
    assert ["prompt_token_ids" in chunk for chunk in chunks] == [True] + [False] * (len(chunks) - 1)
    parts = [chunk["choices"][0] for chunk in chunks]
    assert [token for part in parts for token in part["token_ids"]] == ids
    assert all(len(part["token_ids"]) == len(part["logprobs"]["content"] if part["logprobs"] else []) for part in parts)


def test_ids_come_only_when_asked_for(post):
    answer = post(logprobs=True, temperature=0.7, seed=1)
    assert "prompt_token_ids" not in answer.json()
    assert "token_ids" not in answer.json()["choices"][0]
    assert answer.headers["x-clawpipe-logprobs"] == "raw"
    assert "x-clawpipe-logprobs" not in post().headers


def test_an_answer_keeps_to_its_schema(ask):
    """The model's weights are random, so that nothing but the grammar makes this JSON."""
    wanted = {"type": "json_schema", "json_schema": {"name": "order", "schema": SCHEMA, "strict": True}}
    for seed in range(8):
        [choice] = ask(temperature=1, seed=seed, response_format=wanted, max_completion_tokens=200).choices
        said = json.loads(choice.message.content)
        assert set(said) == {"item", "count"}
        assert said["item"] in ("mug", "pen")
        assert 0 <= said["count"] <= 99
        assert choice.finish_reason == "stop"


def test_a_json_object(ask):
    limited = ask(temperature=0, response_format={"type": "json_object"}, max_completion_tokens=30)
    assert limited.choices[0].message.content.startswith("{")


def test_a_schema_that_cannot_be_kept_is_refused(post):
    schemas = {
        "type": {"type": "strin"},
        "$ref": {"$ref": "http://127.0.0.1/x.json"},
        "unevaluatedProperties": {"type": "object", "unevaluatedProperties": False},
        "format": {"type": "string", "format": "colour"},
        "pattern": {"type": "string", "pattern": "(?=a)b"},
    }
    for keyword, schema in schemas.items():
        answer = post(response_format={"type": "json_schema", "json_schema": {"name": "x", "schema": schema}})
        error = answer.json()["error"]
        assert (answer.status_code, error["param"].split(".")[0]) == (400, "response_format")
        assert keyword in error["message"] or keyword == "$ref"
        assert "\n" not in error["message"]


def test_plain_text_is_continued_without_a_template(client, engine, tokenizer):
    ids = tokenizer("Once upon", add_special_tokens=False)["input_ids"]
    sampled = engine.begin([ids]).sample({0: 3}, Sampling(0.7, 16, (tokenizer.eos_token_id,)))[0]
    fields = {"model": "agent", "temperature": 0.7, "seed": 3, "logprobs": 2, "extra_body": {"return_token_ids": True}}
    for prompt in ("Once upon", ids):
        answer = client.completions.create(**fields, prompt=prompt)  # 16 tokens, as at OpenAI
        [choice] = answer.choices
        assert (answer.prompt_token_ids, choice.token_ids) == (ids, sampled.ids)
        assert choice.logprobs.token_logprobs == pytest.approx(sampled.logprobs, abs=1e-4)
        assert all(len(rivals) == 2 for rivals in choice.logprobs.top_logprobs)
    chunks = list(client.completions.create(**fields, prompt="Once upon", stream=True))
    assert "".join(chunk.choices[0].text for chunk in chunks) == choice.text
    assert [token for chunk in chunks for token in chunk.choices[0].token_ids] == sampled.ids


@pytest.mark.parametrize("fields", [{"echo": True}, {"best_of": 2}, {"suffix": "x"}, {"prompt": [10**9]}, {"prompt": "x" * 5000}])
def test_what_plain_text_cannot_have(random_server, fields):
    body = {"model": "agent", "prompt": "Hello"} | fields
    headers = {"authorization": "Bearer sk-a-test-key"}
    answer = httpx.post(f"{random_server.url}/v1/completions", json=body, headers=headers, timeout=60)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, next(iter(fields)))
