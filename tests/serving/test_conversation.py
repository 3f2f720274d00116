"""Conversion of OpenAI's messages and tools in both directions."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clawpipe.core.conversation.messages import Message, ToolCall, ToolSpec
from clawpipe.play.environments.shop import ShopEnvironment
from clawpipe.serve.serving.conversation import message_body, to_messages, to_tools
from clawpipe.serve.serving.protocol import ApiError, parse_request


def parsed(messages, tools=()):
    return parse_request(json.dumps({"model": "m", "messages": messages, "tools": list(tools)}).encode())


def test_an_environments_preamble_and_tools_survive_the_trip():
    shop = ShopEnvironment()
    request = parsed(map_(message_body, shop.preamble()), map_(ToolSpec.as_function, shop.tools()))
    assert to_messages(request.messages) == shop.preamble()
    assert to_tools(request.tools, "pythonic") == shop.tools()


def map_(function, values):
    return [function(value) for value in values]


arguments = st.dictionaries(st.text(max_size=5), st.none() | st.integers() | st.text(max_size=5), max_size=3)


@given(arguments)
def test_arguments_keep_their_spelling(values):
    function = {"name": "f", "arguments": json.dumps(values, indent=2)}
    request = parsed([{"role": "assistant", "tool_calls": [{"id": "c", "type": "function", "function": function}]}])
    [message] = to_messages(request.messages)
    [call] = message.tool_calls
    assert (call.arguments, call.malformed) == (json.dumps(values, indent=2), False)


def test_roles():
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    request = parsed(
        [
            {"role": "developer", "content": "Be brief."},
            {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
            {"role": "assistant", "content": None, "refusal": None, "annotations": [], "tool_calls": [call]},
            {"role": "tool", "content": "1", "tool_call_id": "c"},
        ]
    )
    assert to_messages(request.messages) == [
        Message("system", "Be brief."),
        Message("user", "a\nb"),
        Message("assistant", "", (ToolCall("c", "f", "{}"),)),
        Message("tool", "1", tool_call_id="c", name="f"),
    ]


def test_nested_and_optional_arguments_are_accepted():
    place = {"type": "object", "properties": {"shelf": {"type": "integer"}}, "description": "where"}
    properties = {"item": {"type": ["string", "null"], "enum": ["mug", None]}, "places": {"type": "array", "items": place}}
    parameters = {"type": "object", "properties": properties, "required": ["item"], "additionalProperties": True}
    tools = [
        {"type": "function", "function": {"name": "stock", "description": "Pieces.", "parameters": parameters, "strict": False}},
        {"type": "function", "function": {"name": "now"}},
    ]
    request = parsed([{"role": "user", "content": "?"}], tools)
    assert to_tools(request.tools, "pythonic") == [ToolSpec("stock", "Pieces.", parameters), ToolSpec("now", "", {})]


@pytest.mark.parametrize("text", ["{", "[]", '{"a": NaN}', '{"a": "\\ud800"}', "[" * 100_000, '{"a": 1}{"a": 2}'])
def test_arguments_that_are_no_object_are_shown_as_they_are(text):
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": text}}
    [message] = to_messages(parsed([{"role": "assistant", "tool_calls": [call]}]).messages)
    assert message.tool_calls == (ToolCall("c", "f", text, malformed=True),)


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
def test_a_thought_in_a_field_of_its_own_stands_before_the_text(field):
    [message] = to_messages(parsed([{"role": "assistant", "content": "4", field: "2 and 2"}]).messages)
    assert message.content == "<think>\n2 and 2\n</think>\n4"


def test_hermes_takes_names_that_python_would_not():
    tool = {"type": "function", "function": {"name": "get-stock"}}
    request = parsed([{"role": "user", "content": "?"}], [tool])
    assert to_tools(request.tools, "hermes") == [ToolSpec("get-stock", "", {})]
    with pytest.raises(ApiError, match="Python syntax"):
        to_tools(request.tools, "pythonic")


def test_an_assistant_may_have_said_nothing():
    for said in ({"content": None}, {}, {"content": "", "reasoning_content": None}):
        request = parsed([{"role": "user", "content": "a"}, {"role": "assistant"} | said, {"role": "user", "content": "b"}])
        assert to_messages(request.messages)[1] == Message("assistant", "")


def test_settings_that_ask_for_nothing_are_no_fault():
    body = {"model": "m", "messages": [{"role": "user", "content": "a"}], "top_logprobs": 0, "logprobs": False}
    assert parse_request(json.dumps(body).encode()).top is None


def test_names_of_tools_may_be_as_long_as_clients_make_them():
    name = "mcp__a-long-name-of-a-server__" + "x" * 98
    assert to_tools(parsed([{"role": "user", "content": "a"}], [{"type": "function", "function": {"name": name}}]).tools, "hermes")
