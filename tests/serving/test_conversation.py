"""Conversion of OpenAI's messages and tools in both directions."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clawpipe.environments.shop import ShopEnvironment
from clawpipe.messages import Message, ToolCall, ToolSpec
from clawpipe.serving.conversation import message_body, to_messages, to_tools
from clawpipe.serving.protocol import ApiError, parse_request


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
def test_arguments_are_spelt_as_the_policy_spells_them(values):
    function = {"name": "f", "arguments": json.dumps(values, indent=2)}
    request = parsed([{"role": "assistant", "tool_calls": [{"id": "c", "type": "function", "function": function}]}])
    [message] = to_messages(request.messages)
    [call] = message.tool_calls
    assert json.loads(call.arguments) == values
    assert call.arguments == json.dumps(values, sort_keys=True, ensure_ascii=False)


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


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"a": NaN}', '{"a": "\\ud800"}', "[" * 100_000])
def test_arguments_that_are_no_object(text):
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": text}}
    request = parsed([{"role": "assistant", "tool_calls": [call]}])
    with pytest.raises(ApiError, match="no JSON object"):
        to_messages(request.messages)


def test_hermes_takes_names_that_python_would_not():
    tool = {"type": "function", "function": {"name": "get-stock"}}
    request = parsed([{"role": "user", "content": "?"}], [tool])
    assert to_tools(request.tools, "hermes") == [ToolSpec("get-stock", "", {})]
    with pytest.raises(ApiError, match="Python syntax"):
        to_tools(request.tools, "pythonic")
