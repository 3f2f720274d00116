"""SGLang's `/generate`: ids in, the sampled ids and their log-probs out."""

import httpx
import pytest

from clawpipe.model.engines.base import Sampling

KEY = {"authorization": "Bearer sk-a-test-key"}


@pytest.fixture
def generate(random_server):
    def send(**body):
        return httpx.post(f"{random_server.url}/generate", json=body, headers=KEY, timeout=60)

    return send


def test_sampled_ids_come_with_log_probs_at_the_temperature(generate, engine, tokenizer):
    """The oracle: a pass of another engine over the same ids. `[logprob, id, text]` is SGLang's order."""
    ids = tokenizer("Once upon", add_special_tokens=False)["input_ids"]
    settings = {"n": 2, "temperature": 0.7, "max_new_tokens": 12, "stop": None}
    first, second = generate(input_ids=ids, sampling_params=settings, return_logprob=True).json()
    assert first["output_ids"] != second["output_ids"]
    for answer in (first, second):
        meta = answer["meta_info"]
        logprobs = [one[0] for one in meta["output_token_logprobs"]]
        assert [one[1] for one in meta["output_token_logprobs"]] == answer["output_ids"]
        assert (meta["prompt_tokens"], meta["completion_tokens"], meta["weight_version"]) == (len(ids), len(logprobs), "f" * 16)
        assert meta["finish_reason"]["type"] in ("stop", "length")
        assert logprobs == pytest.approx(engine.score([*ids, *answer["output_ids"]], len(ids), 0.7), abs=1e-4)


def test_one_answer_to_a_text_is_no_list(generate, engine, tokenizer):
    ids = tokenizer("Once upon")["input_ids"]
    answer = generate(text="Once upon", sampling_params={"temperature": 0, "max_new_tokens": 5}).json()
    greedy = engine.begin([ids]).sample({0: 0}, Sampling(0.0, 5, (tokenizer.eos_token_id,)))[0]
    assert answer["output_ids"] == greedy.ids
    assert "output_token_logprobs" not in answer["meta_info"]


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"input_ids": [1, 2], "stream": True}, "stream"),
        ({}, "input_ids"),
        ({"input_ids": [1], "text": "a"}, "input_ids"),
        ({"input_ids": []}, "input_ids"),
        ({"input_ids": [10**9]}, "prompt"),
        ({"input_ids": [1], "sampling_params": {"regex": "a+"}}, "sampling_params.regex"),
        ({"input_ids": [1], "sampling_params": {"ignore_eos": True}}, "sampling_params.ignore_eos"),
        ({"input_ids": ["a"]}, "input_ids[0]"),
    ],
)
def test_what_it_cannot_do_is_refused_in_one_line(generate, body, param):
    answer = generate(**body)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, param)
    assert "\n" not in answer.json()["error"]["message"]


def test_it_asks_for_the_key(random_server):
    assert httpx.post(f"{random_server.url}/generate", json={"input_ids": [1]}, timeout=60).status_code == 401
