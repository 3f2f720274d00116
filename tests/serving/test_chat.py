"""Chat completions through the official client, compared with a separate engine."""

import math

import pytest

from clawpipe.core.conversation.messages import Message
from clawpipe.model.engines.base import Sampling
from clawpipe.model.policy.renderer import Renderer

SEEN = {"temperature": 0.7, "seed": 11, "logprobs": True, "top_logprobs": 3}


@pytest.fixture
def prompt(tokenizer):
    return Renderer(tokenizer, "pythonic", ()).prompt([Message("user", "Hello")])


def joined(chunks):
    """Return content, log-probs, finish reason and usage of a stream."""
    choices = [choice for chunk in chunks for choice in chunk.choices]
    content = "".join(choice.delta.content or "" for choice in choices)
    logprobs = [entry for choice in choices if choice.logprobs for entry in choice.logprobs.content]
    [reason] = [choice.finish_reason for choice in choices if choice.finish_reason]
    return content, logprobs, reason, chunks[-1].usage


def test_tokens_and_logprobs_are_those_of_the_engine(ask, engine, prompt, tokenizer):
    answer = ask(**SEEN)
    sampling = Sampling(0.7, 24, (tokenizer.eos_token_id,))
    ids = engine.begin([prompt]).sample({0: 11}, sampling)[0].ids
    [choice] = answer.choices
    said = tokenizer.decode(ids, skip_special_tokens=True)  # the end of the turn is no text
    assert choice.message.content == said
    entries = choice.logprobs.content
    own = engine.score(prompt + ids, len(prompt))[: len(entries)]
    assert [entry.logprob for entry in entries] == pytest.approx(own, abs=1e-4)  # of the model itself: temperature 1
    assert bytes(byte for entry in entries for byte in entry.bytes or ()).decode("utf-8", "replace").startswith(said)
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (len(prompt), len(ids))
    assert answer.usage.total_tokens == len(prompt) + len(ids)


@pytest.mark.parametrize("heat", [1e-6, 1e-38, 5e-324])
def test_a_temperature_of_almost_nothing_is_greedy(ask, heat):
    """A float32 cannot hold a logit divided by the least of them."""
    fields = {"max_completion_tokens": 5, "logprobs": True, "top_logprobs": 3, "extra_body": {"return_token_ids": True}}
    cold, none = (ask(temperature=one, **fields).choices[0] for one in (heat, 0))
    assert (cold.message, cold.logprobs) == (none.message, none.logprobs)


def test_rivals_are_the_likeliest_tokens_of_the_vocabulary(ask, engine, prompt, tokenizer):
    [entry] = ask(temperature=0, max_completion_tokens=1, logprobs=True, top_logprobs=20).choices[0].logprobs.content
    every = sorted((engine.score([*prompt, token], len(prompt))[0] for token in range(len(tokenizer))), reverse=True)
    assert [rival.logprob for rival in entry.top_logprobs] == pytest.approx(every[:20], abs=1e-4)
    assert entry.top_logprobs[0].bytes == entry.bytes  # greedy
    assert math.fsum(map(math.exp, every)) == pytest.approx(1, abs=1e-3)


@pytest.mark.parametrize("more", [{}, {"stop": ["a", "\x05", "zz"], "max_completion_tokens": 200}, {"top_p": 0.4}])
def test_a_stream_is_the_same_turn(ask, more):
    for seed in range(3):
        whole = ask(**SEEN | {"seed": seed} | more)
        chunks = list(ask(**SEEN | {"seed": seed} | more, stream=True, stream_options={"include_usage": True}))
        [choice] = whole.choices
        assert joined(chunks) == (choice.message.content, choice.logprobs.content, choice.finish_reason, whole.usage)
        assert chunks[0].choices[0].delta.role == "assistant"
        assert all(chunk.usage is None for chunk in chunks[:-1])
        assert {chunk.id for chunk in chunks} == {chunks[0].id}
        assert chunks[0].id != whole.id


def test_usage_comes_in_a_stream_only_when_asked_for(ask):
    assert not any("usage" in chunk.model_fields_set for chunk in ask(stream=True, max_completion_tokens=3))


def test_a_seed_makes_a_turn_repeatable(ask):
    first, again, other, unseeded = (ask(temperature=1, seed=seed) for seed in (5, 5, 6, None))
    assert first.choices[0].message == again.choices[0].message
    assert first.system_fingerprint == again.system_fingerprint == "f" * 16
    assert len({answer.choices[0].message.content for answer in (first, other, unseeded)}) == 3


def test_a_stop_string_ends_the_turn_before_it(ask):
    fields = {"temperature": 1, "max_completion_tokens": 60, "logprobs": True}
    turns = (ask(**fields, seed=seed) for seed in range(20))
    seed, free = next((seed, turn) for seed, turn in enumerate(turns) if len(turn.choices[0].message.content) > 30)
    text = free.choices[0].message.content
    stop = text[20:22]
    cut = ask(**fields, seed=seed, stop=stop)
    [choice] = cut.choices
    assert choice.message.content == text[: text.index(stop)]
    assert choice.finish_reason == "stop"
    assert cut.usage.completion_tokens < free.usage.completion_tokens
    sampled = bytes(byte for entry in choice.logprobs.content for byte in entry.bytes).decode("utf-8", "replace")
    assert sampled.rstrip("\ufffd").startswith(text[: text.index(stop)].rstrip("\ufffd"))  # the cut may be inside of a token
    assert stop not in sampled


def test_without_a_limit_the_answer_has_the_rest_of_the_context(ask, engine):
    answer = ask("x" * 960, temperature=0, max_completion_tokens=None)
    assert answer.choices[0].finish_reason == "length"
    assert answer.usage.total_tokens == engine.context


def test_the_old_name_of_the_limit_and_content_in_parts(ask):
    new = ask("Hel\nlo", temperature=0, max_completion_tokens=5)
    parts = [{"type": "text", "text": "Hel"}, {"type": "text", "text": "lo"}]
    old = ask(parts, temperature=0, max_completion_tokens=None, max_tokens=5)
    assert new.choices == old.choices


def test_fields_that_change_nothing_are_taken(ask):
    plain = ask(seed=1)
    labelled = ask(seed=1, n=1, user="anne", store=False, metadata={"a": "b"}, logit_bias={}, presence_penalty=0,
                   response_format={"type": "text"}, parallel_tool_calls=True, service_tier="auto", top_p=1,
                   extra_body={"frobnicate": 1, "top_k": -1, "session_id": "s"})  # fmt: skip
    assert plain.choices == labelled.choices


def test_the_model_says_what_exactly_it_is(client, random_server):
    [model] = client.models.list().data
    assert (model.id, model.version, model.digest, model.policy_version) == ("agent", "3", "d" * 64, "f" * 16)
    assert model == client.models.retrieve("agent")
    assert model.context_length == 1024
    raw = client.chat.completions.with_raw_response.create(
        model="agent", messages=[*model.preamble, {"role": "user", "content": "?"}], tools=model.tools, max_tokens=1
    )
    assert raw.headers["x-clawpipe-model-version"] == "3"
    assert raw.headers["x-clawpipe-digest"] == "d" * 64
    assert raw.headers["x-clawpipe-policy-version"] == "f" * 16
    assert raw.parse().model == "agent"
