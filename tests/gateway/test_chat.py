"""Chat completions through the gateway: what the engine is asked, what the client gets, and what is captured."""

from __future__ import annotations

import json
import math

import httpx
import openai
import pytest

KEY = "sk-a-test-key-of-the-gateway"
TOOLS = [{"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}]
FIRST = math.log(math.exp(2) / (math.exp(2) + math.exp(1) + 1))  # log-prob of the fake's first token at temperature 1


def last_turn(gateway, text):
    return next(turn for turn in reversed(gateway.turns()) if turn.request["messages"][-1]["content"] == text)


def test_an_answer_holds_what_was_asked_and_its_turn_all_tokens(gateway):
    answer = gateway.ask("one two three", temperature=1)
    assert answer.choices[0].message.content == "one two three "
    assert answer.choices[0].logprobs is None
    assert "token_ids" not in answer.choices[0].model_extra
    assert "prompt_token_ids" not in answer.model_extra
    assert answer.usage.completion_tokens == 3

    turn = last_turn(gateway, "one two three")
    assert turn.answers[0].token_ids == [100, 101, 102]
    assert turn.answers[0].logprobs == pytest.approx([FIRST] * 3)
    assert turn.prompt_token_ids == [1 + sum(b"one two three") % 90]
    assert (turn.temperature, turn.logprobs_kind, turn.no_tokens, turn.response_id) == (1.0, "tempered", None, answer.id)


def test_a_stream_is_the_same_and_captured_before_its_end(gateway):
    chunks, events = [], []
    body = {"model": "agent", "messages": [{"role": "user", "content": "four five"}], "stream": True}
    with httpx.stream("POST", f"{gateway.url}/v1/chat/completions", json=body, headers={"authorization": f"Bearer {KEY}"}) as reply:
        for line in reply.iter_lines():
            if line == "data: [DONE]":
                turn = last_turn(gateway, "four five")  # read while the answer has not ended
                assert turn.answers[0].message == {"role": "assistant", "content": "four five "}
                assert turn.answers[0].token_ids == [100, 101]
                assert turn.prompt_token_ids == [1 + sum(b"four five") % 90]
                assert turn.policy_version == "f" * 16
            events += [line] if line else []
    assert events[-1] == "data: [DONE]"
    chunks = [json.loads(event[6:]) for event in events[:-1]]
    assert "".join(chunk["choices"][0]["delta"].get("content", "") for chunk in chunks) == "four five "
    assert not any("prompt_token_ids" in chunk or chunk.get("usage") or "token_ids" in chunk["choices"][0] for chunk in chunks)
    assert not any(chunk["choices"][0].get("logprobs") for chunk in chunks)


def test_who_asks_for_tokens_log_probs_and_usage_gets_them(gateway):
    fields = {"logprobs": True, "top_logprobs": 2, "stream_options": {"include_usage": True}}
    chunks = gateway.ask("six seven", stream=True, extra_body={"return_token_ids": True}, **fields)
    assert chunks[-1].usage.completion_tokens == 2
    ids = [one for chunk in chunks for choice in chunk.choices for one in choice.model_extra.get("token_ids") or []]
    assert ids == [100, 101]
    logprobs = [one for chunk in chunks for choice in chunk.choices if choice.logprobs for one in choice.logprobs.content]
    assert [len(one.top_logprobs) for one in logprobs] == [2, 2]
    assert chunks[0].model_extra["prompt_token_ids"]


def test_streamed_tool_calls_are_recorded_whole(gateway):
    chunks = gateway.ask("eight nine", stream=True, tools=TOOLS)
    pieces = [call.function.arguments for chunk in chunks for call in (chunk.choices[0].delta.tool_calls or [])]
    assert pieces == ["", '{"at"', ": 1}"]
    [call] = last_turn(gateway, "eight nine").answers[0].message["tool_calls"]
    assert call == {"id": "call_1", "type": "function", "function": {"name": "look", "arguments": '{"at": 1}'}}


def test_several_answers_are_all_captured(gateway):
    answer = gateway.ask("ten", n=3)
    assert [choice.index for choice in answer.choices] == [0, 1, 2]
    assert [one.token_ids for one in last_turn(gateway, "ten").answers] == [[100], [100], [100]]


@pytest.mark.parametrize("stream", [True, False])
def test_reasoning_is_recorded_and_given_only_if_wanted(gateway, fake, stream):
    """vLLM blanks token ids where reasoning is left out."""
    text = f"think {stream}"
    answer = gateway.ask(text, stream=stream, extra_body={"include_reasoning": False})
    got = repr(answer)
    assert "Hmm" not in got
    assert fake.asked()[-1]["body"]["include_reasoning"] is True
    assert last_turn(gateway, text).answers[0].message["reasoning_content"] == "Hmm."


def test_the_clients_settings_reach_the_engine(gateway, fake):
    extra = {"session_id": "s", "turn_type": "main", "session_done": True, "parent_session_id": "p", "top_k": 5}
    gateway.ask("settings", temperature=0.3, top_p=0.9, seed=7, stop=["x"], extra_body=extra, user="ann")
    body = fake.asked()[-1]["body"]
    assert {"temperature": 0.3, "top_p": 0.9, "seed": 7, "stop": ["x"], "top_k": 5, "user": "ann"}.items() <= body.items()
    assert not {"session_id", "turn_type", "session_done", "parent_session_id"} & body.keys()
    assert fake.asked()[-1]["key"] == "Bearer sk-upstream"
    turn = last_turn(gateway, "settings")
    assert (turn.session, turn.parent, turn.done, turn.user, turn.temperature) == ("s", "p", True, "ann", 0.3)
    assert turn.logprobs_kind == "none"  # vLLM's are over what top_p and top_k left


def test_an_error_of_the_engine_keeps_its_status_and_form(gateway):
    with pytest.raises(openai.NotFoundError, match="no such model"):
        gateway.ask("hello", model="missing")


def test_other_endpoints_are_passed_on_but_not_development_ones(gateway, fake):
    assert gateway.get("/v1/models").json()["data"][0]["id"] == "agent"
    echoed = gateway.post("/v1/embeddings", {"input": 1}).json()
    assert (echoed["path"], echoed["body"]) == ("/v1/embeddings", {"input": 1})
    assert gateway.get("/v1/models/moved").status_code == 502  # a redirect is not followed
    for path in ("/pause", "/fake/asked", "/v1/load_lora_adapter", "/v1/../pause", "/v1/models/../../pause", "//pause"):
        assert gateway.post(path, {}).status_code in (404, 405), path
        assert gateway.get(path).status_code == 404, path


def test_a_client_that_goes_away_cancels_the_engine(tmp_path, home, start, start_fake):
    with start_fake(tmp_path / "log", "--hang") as fake, start(home, fake.url) as gateway:
        body = {"model": "agent", "messages": [{"role": "user", "content": "gone before the end"}], "stream": True}
        url, headers = f"{gateway.url}/v1/chat/completions", {"authorization": f"Bearer {KEY}"}
        with httpx.stream("POST", url, json=body, headers=headers) as reply:
            lines = (line for line in reply.iter_lines() if "before" in line)
            next(lines)
        while not fake.asked()[-1]["cancelled"]:
            pass
        while not gateway.turns():
            pass
        [turn] = gateway.turns()
        assert turn.ending == "cancelled"
        assert turn.answers[0].message["content"] == "gone before "


def test_an_engine_that_breaks_off_is_an_error_and_recorded(tmp_path, home, start, start_fake):
    with start_fake(tmp_path / "log", "--broken") as fake, start(home, fake.url) as gateway:
        with pytest.raises(openai.APIError, match="does not answer"):
            gateway.ask("broken off in the middle", stream=True)
        assert [turn.ending for turn in gateway.turns()] == ["broken"]


def test_a_missing_engine_is_a_503_with_retry_after(home, start, tmp_path, start_fake):
    with start_fake(tmp_path / "log") as fake:
        context = start(home, fake.url)
        gateway = context.__enter__()
    with pytest.raises(openai.InternalServerError) as raised:
        gateway.ask()
    assert raised.value.status_code == 503
    assert raised.value.response.headers["retry-after"]
    assert raised.value.response.json()["error"]["code"] == "upstream_unavailable"
    context.__exit__(None, None, None)


def test_a_version_is_told_the_opinions_of_its_own_answers(gateway, fake):
    """The fake names a policy version in streams, as `clawpipe serve` does, and none in whole answers."""
    gateway.ask("of a version", stream=True)
    turn, other = last_turn(gateway, "of a version"), gateway.ask("of an engine without versions")
    for body in ({"response_id": turn.id, "thumb": "down"}, {"response_id": turn.response_id, "correction": "No."}):
        assert gateway.post("/v1/feedback", body).status_code == 201
    assert gateway.post("/v1/feedback", {"response_id": other.id, "thumb": "down"}).status_code == 201
    assert httpx.get(f"{fake.url}/fake/opinions").json() == [{"response_id": turn.response_id, "rating": -1.0}] * 2
