"""Text completions and responses through the gateway, by the `openai` client: recorded as turns of a chat."""

from __future__ import annotations

import math

import httpx
import openai
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clawpipe.core.store.home import Home
from clawpipe.data.capture.sessions import sessions_of
from clawpipe.data.wire.dialects.fields import UntranslatableError, WrongRequestError
from clawpipe.data.wire.dialects.kept import KeptResponses
from clawpipe.data.wire.dialects.responses_in import chat_of_response, messages_of
from clawpipe.serve.gateway.responses import CollectedResponse

FIELDS = [
    "type",
    "role",
    "content",
    "text",
    "output",
    "item",
    "delta",
    "output_index",
    "id",
    "usage",
    "status",
    "arguments",
    "summary",
]
KEY = "sk-a-test-key-of-the-gateway"
TOOL = {"type": "function", "name": "look", "description": "Look.", "parameters": {"type": "object"}, "strict": False}
FIRST = math.log(math.exp(2) / (math.exp(2) + math.exp(1) + 1))  # log-prob of the fake's first token at temperature 1
CALL = {"id": "call_1", "type": "function", "function": {"name": "look", "arguments": '{"at": 1}'}}


def turn_of(gateway, response):
    return next(turn for turn in gateway.turns() if turn.response_id == response)


@pytest.fixture
def client(gateway):
    with gateway.client() as client:
        yield client


@pytest.mark.parametrize("stream", [False, True])
def test_a_text_completion_is_a_side_turn_with_its_tokens(gateway, client, stream):
    answer = client.completions.create(model="agent", prompt="red green blue", temperature=1, stream=stream)
    parts = list(answer) if stream else [answer]
    assert "".join(part.choices[0].text for part in parts) == "red green blue "
    assert not any(
        part.choices[0].logprobs or part.choices[0].model_extra.keys() & {"token_ids", "prompt_token_ids"} for part in parts
    )
    turn = turn_of(gateway, parts[0].id)
    assert (turn.api, turn.turn_type, turn.request["messages"]) == (
        "completions",
        "side",
        [{"role": "user", "content": "red green blue"}],
    )
    [said] = turn.answers
    assert (said.message, said.token_ids, turn.prompt_token_ids) == (
        {"role": "assistant", "content": "red green blue "},
        [100, 101, 102],
        [7, 8],
    )
    assert said.logprobs == pytest.approx([FIRST] * 3)


def test_a_text_completion_may_ask_for_log_probs(gateway, client):
    answer = client.completions.create(model="agent", prompt="one two", logprobs=1, extra_headers={"x-turn-type": "main"})
    assert len(answer.choices[0].logprobs.token_logprobs) == 2
    assert turn_of(gateway, answer.id).turn_type == "main"


@pytest.fixture(scope="module")
def textual(start, start_fake, tmp_path_factory):
    """A gateway before an engine that says no tokens, and is asked for responses by its own route."""
    folder = tmp_path_factory.mktemp("textual")
    with start_fake(folder / "fake", "--ignorant") as fake, start(Home(folder / "home"), fake.url) as running:
        yield running


@pytest.fixture
def reader(textual):
    with textual.client() as client:
        yield client


def test_a_conversation_by_responses_is_one_session(textual, reader):
    gateway, client = textual, reader
    asked = [{"role": "user", "content": "How many mugs"}]
    first = client.responses.create(model="agent", instructions="Be short.", input="How many mugs", tools=[TOOL], temperature=0.5)
    assert [item.type for item in first.output] == ["message", "function_call"]
    result = {"type": "function_call_output", "call_id": "call_1", "output": "4"}
    history = [*asked, *(item.model_dump(exclude_none=True) for item in first.output), result]
    second = client.responses.create(model="agent", instructions="Be short.", input=history, tools=[TOOL])

    one, two = (turn_of(gateway, answer.id) for answer in (first, second))
    said = {"role": "assistant", "content": "How many mugs", "tool_calls": [CALL]}
    tool = {"type": "function", "function": {name: TOOL[name] for name in ("name", "description", "parameters", "strict")}}
    system = {"role": "system", "content": "Be short."}
    assert (one.api, one.request["messages"], one.request["tools"]) == ("responses", [system, *asked], [tool])
    assert (one.answers[0].message, one.answers[0].finish_reason) == (said, "tool_calls")
    assert (one.usage, one.temperature) == ({"prompt_tokens": 5, "completion_tokens": 3, "total_tokens": 8}, 0.5)
    assert one.no_tokens == "the engine gives none"
    assert two.request["messages"] == [system, *asked, said, {"role": "tool", "tool_call_id": "call_1", "content": "4"}]
    assert two.session == one.session
    [session] = sessions_of([one, two]).values()
    assert [turn.relation for turn in session.turns] == ["starts", "continues"]
    assert session.turns[0].chosen.next_state == [two.request["messages"][-1]]


def test_a_stream_of_events_ends_after_its_turn_is_captured(textual):
    gateway = textual
    body = {"model": "agent", "input": "four five", "tools": [TOOL], "stream": True}
    names = []
    with httpx.stream("POST", f"{gateway.url}/v1/responses", json=body, headers={"authorization": f"Bearer {KEY}"}) as reply:
        for line in reply.iter_lines():
            names += [line[7:]] if line.startswith("event: ") else []
            if line == "event: response.completed":
                [turn] = [turn for turn in gateway.turns() if turn.request["messages"][-1]["content"] == "four five"]
                assert turn.answers[0].message == {"role": "assistant", "content": "four five", "tool_calls": [CALL]}
                assert turn.ending == "complete"
    assert names[0] == "response.created"
    assert names[-1] == "response.completed"
    with gateway.client() as client:
        events = list(client.responses.create(model="agent", input="six", stream=True))
    assert events[-1].response.output_text == "six"


def test_a_response_that_names_another_keeps_its_history(textual, reader):
    gateway, client = textual, reader
    first = client.responses.create(model="agent", input="red")
    second = client.responses.create(model="agent", input="blue", previous_response_id=first.id)
    turn = turn_of(gateway, second.id)
    assert [one["content"] for one in turn.request["messages"]] == ["red", "red", "blue"]
    assert turn.session == turn_of(gateway, first.id).session
    unknown = client.responses.with_raw_response.create(model="agent", input="blue", previous_response_id="resp_of_another_day")
    assert unknown.headers["x-clawpipe-captured"] == "off"
    assert all(turn.response_id != unknown.parse().id for turn in gateway.turns())
    text = httpx.get(f"{gateway.url}/metrics", headers={"authorization": f"Bearer {KEY}"}).text
    assert 'uncaptured_total{reason="a previous response that is not kept here"} 1.0' in text


def test_a_response_that_breaks_off_is_recorded_as_broken(start, start_fake, tmp_path):
    with start_fake(tmp_path / "fake", "--broken", "--ignorant") as fake, start(Home(tmp_path / "home"), fake.url) as gateway:
        with gateway.client() as client, pytest.raises(openai.APIError, match="does not answer"):
            list(client.responses.create(model="agent", input="one two three", stream=True))
        [turn] = gateway.turns()
        assert (turn.ending, turn.answers[0].message, turn.answers[0].finish_reason) == (
            "broken",
            {"role": "assistant", "content": "onetwo"},
            None,
        )


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"tools": [{"type": "web_search"}]}, "a tool that the engine runs"),
        ({"conversation": "conv_1"}, "state that only the engine knows"),
        ({"input": [{"type": "item_reference", "id": "msg_1"}]}, "an item that is not kept here"),
        ({"input": [{"role": "user", "content": [{"type": "input_file", "file_id": "x"}]}]}, "a part that is no text"),
        ({"input": [{"role": "user", "content": [{"type": ["text"]}]}]}, "a part that is no text"),
        ({"input": [{"role": "narrator", "content": "Once"}]}, "an item that no chat has"),
        ({"input": [[]]}, "an item that is no object"),
        ({"tools": [{"type": "custom", "name": "apply_patch"}]}, "a custom tool, which takes a text"),
    ],
)
def test_what_has_no_place_in_a_chat_is_named(fields, why):
    with pytest.raises(UntranslatableError, match=why):
        chat_of_response({"input": "hi", **fields}, lambda _: None)


@pytest.mark.parametrize("tools", [TOOL, "look", 5])
def test_tools_are_a_list_or_are_refused(tools):
    with pytest.raises(WrongRequestError, match="tools: not a list"):
        chat_of_response({"input": "hi", "tools": tools}, lambda _: None)


def test_thoughts_and_parallel_calls_are_one_message():
    items = [
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "Hmm."}]},
        {"type": "function_call", "call_id": "a", "name": "f", "arguments": "{}"},
        {"type": "function_call", "call_id": "b", "name": "g", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "a", "output": [{"type": "input_text", "text": "1"}]},
        {"type": "function_call_output", "call_id": "b", "output": "2"},
    ]
    said, *results = messages_of(items)
    assert (said["reasoning_content"], [call["id"] for call in said["tool_calls"]]) == ("Hmm.", ["a", "b"])
    assert [(one["tool_call_id"], one["content"]) for one in results] == [("a", "1"), ("b", "2")]


def test_conversations_are_kept_by_key_and_the_oldest_go_first(monkeypatch):
    monkeypatch.setattr("clawpipe.data.wire.dialects.kept.MOST_BYTES", 100)
    kept = KeptResponses()
    for name in ("r1", "r2"):
        kept.keep("anne", name, {}, [{"role": "user", "content": "x" * 50}])
    assert kept.of("anne")("r1") is None
    assert kept.of("anne")("r2") == [{"role": "user", "content": "x" * 50}]
    assert kept.of("ben")("r2") is None


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.sampled_from(["", "message", "text", "function_call", "reasoning", "assistant"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(FIELDS), inner, max_size=4),
    max_leaves=6,
)


@settings(max_examples=25, deadline=None)
@given(st.fixed_dictionaries({"input": JSON}, optional=dict.fromkeys(("tools", "instructions", "previous_response_id"), JSON)))
def test_any_request_becomes_a_chat_or_is_refused(body):
    try:
        chat = chat_of_response(body, lambda _: None)
    except (UntranslatableError, WrongRequestError):
        return
    assert chat["messages"]
    assert all(isinstance(one["role"], str) for one in chat["messages"])


@settings(max_examples=25, deadline=None)
@given(st.lists(st.fixed_dictionaries({}, optional=dict.fromkeys(("type", "response", *FIELDS), JSON)), max_size=3))
def test_any_events_of_an_engine_are_a_message_or_nothing(events):
    collected = CollectedResponse()
    for event in events:
        collected.add(event)
    if not collected.is_empty:
        [answer] = collected.answers(with_tokens=True)
        assert answer.message["role"] == "assistant"
