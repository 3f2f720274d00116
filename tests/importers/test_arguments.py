"""Arguments of calls: what is a JSON object is told as the standard library tells it, however it is parsed."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clawpipe.data.importers.message import read_messages
from clawpipe.data.importers.toolcalls import split_calls
from clawpipe.data.wire.arguments import parsed_object, tool_call

_TEXT = st.text() | st.text('{}[]":,\\ \n\ufeff0N1eE-', max_size=12)


def _no_number(name: str):
    raise ValueError(name)


def _told(text: str):
    try:
        value = json.loads(text, parse_constant=_no_number)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


@given(_TEXT | st.dictionaries(st.text(), st.floats() | st.integers(-(2**63), 2**63) | st.text()).map(json.dumps))
def test_any_text(text):
    assert repr(parsed_object(text)) == repr(_told(text)) or parsed_object(text) == _told(text)


@pytest.mark.parametrize(
    "text",
    [
        '{"a": NaN}',
        '{"a": 1e999}',
        '{"a": "\\ud800"}',
        ' \n{"a": 1} ',
        "\x0b{}",
        '{"a": 1, "a": 2}',
        '{"a": "\x01"}',
        '{"a":' * 400 + "1" + "}" * 400,
        '{"a":' * 100_000 + "1" + "}" * 100_000,
    ],
)
def test_what_parsers_differ_in(text):
    assert repr(parsed_object(text)) == repr(_told(text))


@pytest.mark.parametrize(
    ("arguments", "malformed"),
    [
        ('{"a": 1, "a": 2}', True),
        ('{"a": {"b": 1, "b" : 2}}', True),
        ('{"a": 1, "\\u0061": 2}', True),
        ('{"a": {"a": 1}, "b": ["x\\":", {"a": 2}]}', False),
    ],
)
def test_a_key_that_is_given_twice_is_malformed(arguments, malformed):
    assert tool_call("f", arguments, "c").malformed is malformed
    [spelled] = split_calls(f'<tool_call>\n{{"name": "f", "arguments": {arguments}}}\n</tool_call>', 0)[1]
    assert spelled.malformed is malformed


@pytest.mark.parametrize("name", ["parameters", "args", "input"])
def test_other_names_of_arguments_in_texts(name):
    body = json.dumps({"name": "f", name: {"city": "Oslo"}})
    [call] = split_calls(f"<tool_call>\n{body}\n</tool_call>", 0)[1]
    sides = [{"role": "tool_call", "content": body}, {"role": "assistant", "content": [{"type": "function_call", "value": body}]}]
    read = [read_messages([side]).messages[0].tool_calls[0] for side in sides]
    assert [(one.name, one.arguments, one.malformed) for one in (call, *read)] == [("f", '{"city": "Oslo"}', False)] * 3


def test_arguments_that_were_streamed_beside_an_empty_object():
    block = {"type": "tool_use", "id": "c", "name": "f", "input": {}, "partial_json": '{"a": 2}'}
    assert read_messages([{"role": "assistant", "content": [block]}]).messages[0].tool_calls[0].arguments == '{"a": 2}'
