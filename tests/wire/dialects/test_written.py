"""Answers of chat completions, written in the dialects: whole and as events, by the published clients' own types."""

from __future__ import annotations

import json
from typing import Any

import anthropic
import pytest
from anthropic.lib.streaming._messages import accumulate_event
from hypothesis import given, settings
from hypothesis import strategies as st

from clawpipe.data.wire.dialects.calls import UnheldError
from clawpipe.data.wire.dialects.messages_out import MessageWriter, messages_error
from clawpipe.data.wire.dialects.responses_out import ResponseWriter
from tests.wire.dialects.strictly import message, message_events, response, response_events, strictly

USAGE = {"prompt_tokens": 7, "completion_tokens": 4, "total_tokens": 11, "prompt_tokens_details": {"cached_tokens": 5}}


def chunks(*deltas: dict[str, Any], reason: str | None = "stop", **more: Any) -> list[dict[str, Any]]:
    """The chunks of a chat: one a delta, the finish reason, the usage."""
    head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "agent"}
    said = [head | {"choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in deltas]
    last = head | {"choices": [{"index": 0, "delta": {}, "finish_reason": reason, **more}]}
    return [*said, last, head | {"choices": [], "usage": USAGE}]


def call(index: int, **fields: Any) -> dict[str, Any]:
    own = {name: fields.pop(name) for name in ("id",) if name in fields}
    return {"tool_calls": [{"index": index, **own, "function": fields}]}


LOOKS = (
    {"role": "assistant", "content": ""},
    {"reasoning_content": "Hm"},
    {"reasoning_content": "m."},
    {"content": "I "},
    {"content": "look."},
    call(0, id="c1", name="stock", arguments=""),
    call(0, arguments='{"item"'),
    call(0, arguments=': "mug"}'),
    call(1, id="c2", name="price", arguments='{"item": "cup"}'),
)


def written(writer: Any, bodies: list[dict[str, Any]]) -> list[dict[str, Any]]:
    events = [event for body in bodies for event in writer.add(body)] + writer.end()
    return json.loads(json.dumps(events))


def as_response(*deltas: dict[str, Any], asked: dict[str, Any] | None = None, **more: Any) -> tuple[list[Any], Any]:
    writer = ResponseWriter(asked or {"model": "agent"}, "resp_1", 5)
    events = response_events(written(writer, chunks(*deltas, **more)))
    return events, response(writer.whole())


def as_message(*deltas: dict[str, Any], asked: dict[str, Any] | None = None, **more: Any) -> tuple[list[Any], Any]:
    writer = MessageWriter(asked or {"model": "agent", "max_tokens": 4}, "msg_1")
    events = message_events(written(writer, chunks(*deltas, **more)))
    return events, message(writer.whole())


def test_a_response_comes_in_the_published_order_of_events():
    events, whole = as_response(*LOOKS)
    text = ["output_item.added", "content_part.added", "output_text.delta", "output_text.delta", "output_text.done"]
    thought = ["output_item.added", "content_part.added", *["reasoning_text.delta"] * 2, "reasoning_text.done"]
    first = ["output_item.added", *["function_call_arguments.delta"] * 2, "function_call_arguments.done", "output_item.done"]
    second = ["output_item.added", "function_call_arguments.delta", "function_call_arguments.done", "output_item.done"]
    ends = ["content_part.done", "output_item.done"]
    wanted = ["created", "in_progress", *thought, *ends, *text, *ends, *first, *second, "completed"]
    assert [event.type.removeprefix("response.") for event in events] == wanted
    assert events[-1].response == whole
    assert [item.type for item in whole.output] == ["reasoning", "message", "function_call", "function_call"]
    assert [(one.name, one.call_id, one.arguments) for one in whole.output[2:]] == [
        ("stock", "c1", '{"item": "mug"}'),
        ("price", "c2", '{"item": "cup"}'),
    ]
    assert (whole.output_text, whole.output[0].content[0].text) == ("I look.", "Hmm.")
    assert {item.status for item in whole.output} == {"completed"}
    assert (whole.usage.input_tokens, whole.usage.output_tokens, whole.usage.input_tokens_details.cached_tokens) == (7, 4, 5)


def test_events_are_snapshots_that_do_not_change_afterwards():
    events, _ = as_response(*LOOKS)
    added = [event for event in events if event.type == "response.output_item.added"]
    assert [item.item.status for item in added] == ["in_progress"] * 4
    assert (added[1].item.content, added[2].item.arguments) == ([], "")
    assert next(event for event in events if event.type == "response.content_part.added").part.text == ""
    assert events[0].response.output == []


@pytest.mark.parametrize(("reason", "why"), [("length", "max_output_tokens"), ("content_filter", "content_filter")])
def test_a_cut_response_is_incomplete(reason, why):
    events, whole = as_response({"content": "I"}, reason=reason)
    assert (events[-1].type, whole.status, whole.incomplete_details.reason) == ("response.incomplete", "incomplete", why)
    assert [item.status for item in whole.output] == ["incomplete"]


def test_an_empty_answer_is_a_message_without_text():
    events, whole = as_response()
    assert ([item.type for item in whole.output], whole.output_text, events[-1].type) == (["message"], "", "response.completed")
    assert as_message()[1].content == []


def test_a_response_says_again_what_was_asked():
    schema = {"type": "json_schema", "name": "n", "schema": {"type": "object"}}
    asked = {
        "model": "m",
        "instructions": "Be short.",
        "tools": [{"type": "function", "name": "f", "parameters": {"type": "object"}}],
        "tool_choice": {"type": "function", "name": "f"},
        "parallel_tool_calls": False,
        "temperature": 0.5,
        "max_output_tokens": 9,
        "metadata": {"a": "b"},
        "text": {"format": schema},
        "reasoning": {"effort": "low"},
        "previous_response_id": "resp_0",
    }
    _, whole = as_response({"content": "x"}, asked=asked)
    again = whole.model_dump(by_alias=True, exclude_none=True)
    assert {name: again[name] for name in asked if name != "model"} == {name: asked[name] for name in asked if name != "model"}


def test_fields_that_may_not_be_null_are_left_out():
    writers = [ResponseWriter({"model": "m"} | more, "resp_1", 5) for more in ({}, {"user": None}, {"user": "ann"})]
    assert [writer.whole().get("user", "none") for writer in writers] == ["none", "none", "ann"]
    message = MessageWriter({"model": "m", "max_tokens": 4}, "msg_1")
    events = written(message, chunks({"content": "I"}))  # clients of JavaScript refuse `citations: null`
    assert message.whole()["content"] == [{"type": "text", "text": "I"}]
    assert next(event for event in events if event["type"] == "content_block_start")["content_block"] == {
        "type": "text",
        "text": "",
    }


def test_logprobs_of_a_text_stand_beside_it():
    entry = {"token": "I", "logprob": -0.5, "bytes": [73], "top_logprobs": [{"token": "I", "logprob": -0.5, "bytes": [73]}]}
    body = {"choices": [{"delta": {"content": "I"}, "logprobs": {"content": [entry]}, "finish_reason": "stop"}]}
    writer = ResponseWriter({"model": "m", "include": ["message.output_text.logprobs"]}, "resp_1", 5)
    events = response_events(written(writer, [body]))
    [delta] = [event for event in events if event.type == "response.output_text.delta"]
    assert (delta.logprobs[0].token, delta.logprobs[0].top_logprobs[0].logprob) == ("I", -0.5)
    assert response(writer.whole()).output[0].content[0].logprobs[0].bytes == [73]


def test_a_message_comes_in_blocks():
    events, whole = as_message(*LOOKS, reason="tool_calls")
    kinds = [event.delta.type if event.type == "content_block_delta" else event.type for event in events]
    block = ("content_block_start", "content_block_stop")
    wanted = ["message_start", block[0], "thinking_delta", "thinking_delta", "signature_delta", block[1], block[0]]
    wanted += ["text_delta", "text_delta", block[1], block[0], *["input_json_delta"] * 2, block[1], block[0], "input_json_delta"]
    assert kinds == [*wanted, block[1], "message_delta", "message_stop"]
    assert [event.index for event in events if event.type == "content_block_start"] == [0, 1, 2, 3]
    thought, text, first, second = whole.content
    assert (thought.thinking, text.text) == ("Hmm.", "I look.")
    assert [(one.id, one.name, one.input) for one in (first, second)] == [
        ("c1", "stock", {"item": "mug"}),
        ("c2", "price", {"item": "cup"}),
    ]
    assert (whole.stop_reason, whole.usage.input_tokens, whole.usage.cache_read_input_tokens) == ("tool_use", 2, 5)


def test_the_client_puts_a_stream_together_as_the_whole_message():
    writer = MessageWriter({"model": "agent", "max_tokens": 4}, "msg_1")
    found, texts = None, dict[int, bytes]()
    for event in message_events(written(writer, chunks(*LOOKS, reason="tool_calls"))):
        found = accumulate_event(event=event, current_snapshot=found, json_bufs=texts)
    assert found is not None
    assert found.model_dump(exclude_none=True) == message(writer.whole()).model_dump(exclude_none=True)


@pytest.mark.parametrize(
    ("asked", "reason", "said", "wanted"),
    [
        ({}, "stop", None, ("end_turn", None)),
        ({"stop_sequences": ["END"]}, "stop", "END", ("stop_sequence", "END")),
        ({"stop_sequences": ["END"]}, "stop", None, ("end_turn", None)),
        ({}, "stop", "<|im_end|>", ("end_turn", None)),
        ({}, "length", None, ("max_tokens", None)),
        ({"max_tokens": 9}, "length", None, ("model_context_window_exceeded", None)),
        ({}, "content_filter", None, ("refusal", None)),
    ],
)
def test_why_a_message_ended(asked, reason, said, wanted):
    _, whole = as_message({"content": "x"}, asked={"max_tokens": 4} | asked, reason=reason, stop_reason=said)
    assert (whole.stop_reason, whole.stop_sequence) == wanted


def test_arguments_that_are_no_object_stay_visible():
    _, whole = as_message(call(0, id="c", name="f", arguments="{oops"))
    assert whole.content[0].input == {"malformed_arguments": "{oops"}


@pytest.mark.parametrize(
    ("text", "thought", "rest"),
    [
        ("<think>\nHmm.\n</think>\nHi", "Hmm.", "Hi"),
        ("<think>\nHmm.\n</think>\n\nHi", "Hmm.", "\nHi"),
        ("<think>\nHmm.", "Hmm.", ""),
        ("<think>\n\n</think>\n\nHi", "", "<think>\n\n</think>\n\nHi"),
        ("<think>Hmm.</think>Hi", "", "<think>Hmm.</think>Hi"),
        ("<thin", "", "<thin"),
        ("Hi <think>\nHmm.\n</think>\n", "", "Hi <think>\nHmm.\n</think>\n"),
    ],
)
@pytest.mark.parametrize("size", [1, 3, 100])
def test_a_thought_at_the_beginning_is_a_block_of_its_own(text, thought, rest, size):
    deltas = [{"content": text[start : start + size]} for start in range(0, len(text), size)]
    _, whole = as_message(*deltas)
    assert "".join(block.thinking for block in whole.content if block.type == "thinking") == thought
    assert "".join(block.text for block in whole.content if block.type == "text") == rest


def test_a_failure_is_an_event_of_the_dialect():
    writer = ResponseWriter({"model": "m"}, "resp_1", 5)
    begun = writer.add(chunks({"content": "I"})[0])
    *_, last = response_events([*begun, *writer.fail(503, "gone", None, None)])
    assert (last.type, last.response.status, last.response.error.message) == ("response.failed", "failed", "gone")
    strictly(anthropic.types.ErrorResponse, messages_error(503, "gone"))
    assert messages_error(503, "gone")["error"]["type"] == "overloaded_error"


DELTA = st.one_of(
    st.builds(lambda text: {"content": text}, st.text("<think>/\na", max_size=9)),
    st.builds(lambda text: {"reasoning_content": text}, st.text(max_size=3)),
    st.builds(
        lambda index, call_id, name, text: call(index, id=call_id, name=name, arguments=text),
        st.integers(0, 2),
        st.sampled_from([None, "a", "b"]),
        st.sampled_from([None, "f", "g"]),
        st.sampled_from(["", "{", "}", "{}", '{"a": 1}']),
    ),
)


@settings(max_examples=200, deadline=None)
@given(st.lists(DELTA, max_size=6), st.sampled_from(["stop", "length", "tool_calls", "content_filter", None]))
def test_whatever_an_engine_says_is_written_by_the_types(deltas, reason):
    try:
        events, whole = as_response(*deltas, reason=reason)
        _, said = as_message(*deltas, reason=reason)
    except UnheldError:
        return
    assert events[-1].response == whole
    text = "".join(block.text for block in said.content if block.type == "text")
    assert text == whole.output_text
