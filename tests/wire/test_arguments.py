"""Arguments of calls: what engines and clients write for them, and which calls are equal."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clawpipe.core.conversation.messages import ToolCall, ToolSpec
from clawpipe.data.importers.message import read_messages
from clawpipe.data.wire.arguments import arguments_of, comparable, comparable_json, listed_calls, tool_call
from clawpipe.data.wire.spelled import spelled_call, spelled_object
from clawpipe.model.policy.calls import codec
from clawpipe.serve.serving.conversation import to_messages
from clawpipe.serve.serving.protocol import RequestMessage

MEANT = [
    ("", "{}"),
    (" \n", "{}"),
    (None, "{}"),
    ("null", "{}"),
    ("{}", "{}"),
    ({}, "{}"),
    ('""', "{}"),  # encoded twice
    ('{"a":1}', '{"a":1}'),
    ({"a": 1}, '{"a": 1}'),
    ('"{\\"a\\": 1}"', '{"a": 1}'),  # encoded twice
    (json.dumps(json.dumps('{"a": 1}')), '{"a": 1}'),  # and once more
    ('{"b": 1, "a": 2}', '{"b": 1, "a": 2}'),  # in its order
]
MALFORMED = ['{"a": 1}{"b": 2}', "{", "[]", "3", '"word"', "mug", '{"a": 1, "a": 2}', '{"a": NaN}', '{"a": "\\ud800"}', "[" * 9999]


@pytest.mark.parametrize(("given", "meant"), MEANT)
def test_what_is_meant(given, meant):
    assert tool_call("now", given, "c") == ToolCall("c", "now", meant)


@pytest.mark.parametrize("given", MALFORMED)
def test_what_is_no_object_stays_as_it_is(given):
    assert tool_call("now", given, "c") == ToolCall("c", "now", given, malformed=True)
    assert arguments_of(tool_call("now", given, "c")) == {}


def test_a_name_is_a_text():
    assert tool_call(3, "{}", "c") == ToolCall("c", "3", "{}", malformed=True)


@pytest.mark.parametrize("given", [*(text for text, _ in MEANT), *MALFORMED])
def test_the_importer_and_the_server_read_the_same(given):
    function = {"name": "now", "arguments": given}
    body = {"role": "assistant", "content": None, "tool_calls": [{"id": "c", "type": "function", "function": function}]}
    [imported] = read_messages([body]).messages
    assert to_messages([RequestMessage(**body)]) == [imported]


@pytest.mark.parametrize(
    ("message", "calls"),
    [
        ({"tool_calls": [{"function": {"name": "f", "arguments": ""}}]}, (ToolCall("call_2_0", "f", "{}"),)),
        ({"tool_calls": [{"name": "f", "arguments": {}}], "function_call": None}, (ToolCall("call_2_0", "f", "{}"),)),
        ({"function_call": {"name": "f", "arguments": "{}"}}, (ToolCall("call_2_0", "f", "{}"),)),
        ({"tool_calls": '[{"id": "x", "function": {"name": "f"}}]'}, (ToolCall("x", "f", "{}"),)),
        ({"tool_calls": "f()"}, (ToolCall("call_2_0", "", "f()", malformed=True),)),
        ({"tool_calls": [{"id": "x", "custom": {"name": "patch", "input": "{"}}]}, (ToolCall("x", "patch", '{"input": "{"}'),)),
        ({"tool_calls": [{"id": "x", "type": "tool_call", "name": "f", "args": {"a": 1}}]}, (ToolCall("x", "f", '{"a": 1}'),)),
        ({"tool_calls": [{"id": "x", "name": "f", "input": {"a": 1}}]}, (ToolCall("x", "f", '{"a": 1}'),)),
        ({"tool_calls": [{"id": "x", "function": {"name": "f", "parameters": {"a": 1}}}]}, (ToolCall("x", "f", '{"a": 1}'),)),
        ({"tool_calls": [{"id": "x", "function": {"name": "f"}, "arguments": '{"a": 1}'}]}, (ToolCall("x", "f", '{"a": 1}'),)),
        ({"tool_calls": [{"id": "x", "name": "f", "arguments": None, "args": {"a": 1}}]}, (ToolCall("x", "f", '{"a": 1}'),)),
        ({"tool_calls": [{"id": "x", "name": "f", "args": []}]}, (ToolCall("x", "f", "[]", malformed=True),)),
        (
            {"tool_calls": [{"id": "x", "name": "f", "kwargs": {"a": 1}}]},
            (ToolCall("x", "f", '{"kwargs": {"a": 1}}', malformed=True),),
        ),
        ({"tool_calls": [{"id": "x", "function": {"name": "f"}, "extra_content": {"s": 1}}]}, (ToolCall("x", "f", "{}"),)),
        ({"tool_calls": None}, ()),
    ],
)
def test_the_calls_of_a_message(message, calls):
    assert tuple(listed_calls(message, 2)) == calls


def test_calls_that_nobody_checked_are_compared_as_texts():
    assert comparable(ToolCall("c", "f", "no JSON")) == ("f", "no JSON")


EQUAL = [('{"a": 2.0}', '{"a": 2}'), ('{"a": [1e2]}', '{"a": [100]}'), ('{"a": 1, "b": 2}', '{"b": 2, "a": 1}'), ("", "{}")]
DIFFERENT = [('{"a": "2"}', '{"a": 2}'), ('{"a": true}', '{"a": 1}'), ('{"a": false}', '{"a": 0}'), ('{"a": null}', "{}")]
DIFFERENT += [('{"a": 2.5}', '{"a": 2}'), ('{"a": [1, 2]}', '{"a": [2, 1]}'), ('{"a": "2.0"}', '{"a": "2"}'), ("{", "{}")]
EQUAL += [('{"a": 18446744073709551616}', '{"a": 18446744073709551616.0}'), ('{"a": "é"}', '{"a": "\\u00e9"}')]
DIFFERENT += [('{"a": 18446744073709551616}', '{"a": 18446744073709551617}'), ('{"a": 1e300}', '{"a": 1e301}')]


@pytest.mark.parametrize(("one", "other", "equal"), [*((*pair, True) for pair in EQUAL), *((*pair, False) for pair in DIFFERENT)])
def test_which_calls_are_equal(one, other, equal):
    assert (comparable(tool_call("f", one, "x")) == comparable(tool_call("f", other, "y"))) is equal
    assert comparable(tool_call("f", one, "x")) != comparable(tool_call("g", one, "x"))


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(), st.lists
)


@given(values, values)
def test_equal_values_are_equal_texts_of_json(one, other):
    """By a definition of equality of its own."""

    def same(one, other):
        if isinstance(one, list) and isinstance(other, list):
            return len(one) == len(other) and all(map(same, one, other))
        numbers = all(isinstance(value, int | float) and not isinstance(value, bool) for value in (one, other))
        return one == other if numbers or type(one) is type(other) else False

    assert (comparable_json(one) == comparable_json(other)) is same(one, other)
    first, second = (comparable(ToolCall("c", "f", json.dumps({"a": value}))) for value in (one, other))
    assert (first == second) is same(one, other)


@pytest.mark.parametrize(
    ("body", "call"),
    [
        ('{"name": "now"}', ToolCall("c", "now", "{}")),
        ('{"name": "now", "arguments": ""}', ToolCall("c", "now", "{}")),
        ('{"name": "f", "arguments": "{\\"a\\": 1}"}', ToolCall("c", "f", '{"a": 1}')),
        ('{"name": "f", "arguments": {"b": 1, "a": 2}}', ToolCall("c", "f", '{"b": 1, "a": 2}')),
        ('{"name": "f", "arguments": "mug"}', ToolCall("c", "f", '{"name": "f", "arguments": "mug"}', malformed=True)),
        ('{"name": "f", "arguments": {}, "name": "g"}', None),
        ('{"name": "f", "arguments": {"a": 1, "a": 2}}', None),
        ('{"name": "f", "parameters": {"a": 1}}', None),
        ("[]", None),
        ("{", None),
    ],
)
def test_calls_that_a_text_spells(body, call):
    found = spelled_call("c", body)
    assert found == call if call else (found.malformed, found.arguments) == (True, body)
    assert spelled_call("c", spelled_object(found)) == found


@pytest.mark.parametrize("arguments", ["{", '{"a": 1}{"b": 2}', "mug"])
@pytest.mark.parametrize("format", ["pythonic", "hermes", "llama3", "mistral", "qwen3-coder", "harmony"])
def test_a_malformed_call_of_an_api_keeps_its_name(format, arguments):
    [message] = read_messages(
        [{"role": "assistant", "tool_calls": [{"function": {"name": "now", "arguments": arguments}}]}]
    ).messages
    written = "".join(codec(format, (ToolSpec("now", "", {}),)).write(message))
    assert "now" in written
    assert arguments in written
