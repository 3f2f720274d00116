"""Tool-call formats: `parse` is the inverse of `write`, and raises for no text."""

import json
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clawpipe.core.conversation.messages import Message, ToolCall, ToolSpec, WrittenFormat
from clawpipe.errors import DataError
from clawpipe.model.policy.calls import codec
from clawpipe.model.policy.formats.common import MAX_CHARACTERS
from clawpipe.model.policy.formats.json_objects import Hermes
from clawpipe.model.policy.formats.pythonic import Pythonic

FORMATS = get_args(WrittenFormat)
TOOLS = (
    ToolSpec("stock", "Pieces in stock.", {"item": "string"}),
    ToolSpec("move", "Move it.", {"what": "string", "to": "number"}),
)

text = st.text(st.characters(codec="utf-8"))
scalars = st.none() | st.booleans() | st.integers(-(10**18), 10**18) | st.floats(allow_nan=False, allow_infinity=False) | text
values = st.recursive(scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3), max_leaves=6)
arguments = st.dictionaries(st.from_regex(r"[a-z_]\w{0,8}", fullmatch=True) | text, values, max_size=4)


def turns(names):
    """Generate assistant messages of one to three calls."""
    return st.lists(st.tuples(names, arguments), min_size=1, max_size=3).map(_turn)


def _turn(pairs):
    calls = [
        ToolCall(f"call_7_{index}", name, json.dumps(value, sort_keys=True, ensure_ascii=False))
        for index, (name, value) in enumerate(pairs)
    ]
    return Message("assistant", "", tuple(calls))


@given(turns(st.sampled_from(["stock", "move", "lookup", "math.add", "größe"])))
def test_a_pythonic_call_is_read_as_it_was_written(turn):
    assert Pythonic(TOOLS).parse("".join(Pythonic(TOOLS).write(turn)), 7) == ("", turn.tool_calls)


@given(turns(text.filter(lambda name: name != "" and name.isprintable())))
def test_a_hermes_call_is_read_as_it_was_written(turn):
    assert Hermes(TOOLS).parse("".join(Hermes(TOOLS).write(turn)), 7) == ("", turn.tool_calls)


fragments = [
    *(
        "[TOOL_CALLS]",
        "; ",
        '{"name": "stock", "parameters": {}}',
        "<function=stock>",
        "</function>",
        "<parameter=item>",
        "</parameter>",
    ),
    "stock(",
    "move(",
    "<tool_call>",
    "</tool_call>",
    '{"name":',
    "\n",
    "(",
    ")",
    '"',
    "\\ud800",
    "item=",
    "[",
    "-",
    "**",
]


@pytest.mark.parametrize("style", FORMATS)
@given(pieces=st.lists(st.sampled_from(fragments) | text))
def test_any_text_is_parsed_into_storable_calls(style, pieces):
    found = codec(style, TOOLS).parse("".join(pieces), 0)
    assert [call.id for call in found.calls] == [f"call_0_{index}" for index in range(len(found.calls))]
    for call in found.calls:
        call.arguments.encode()
        assert call.malformed or isinstance(json.loads(call.arguments), dict)


@pytest.mark.parametrize("style", FORMATS)
@given(pieces=st.lists(st.sampled_from(fragments) | text))
def test_parsed_calls_are_written_and_read_back_unchanged(style, pieces):
    calls = codec(style, TOOLS).parse("".join(pieces), 0).calls
    once_more = codec(style, TOOLS).parse("".join(codec(style, TOOLS).write(Message("assistant", "", calls))), 0)
    assert once_more.calls == calls


@pytest.mark.parametrize(
    ("line", "name", "read"),
    [
        ('stock(item="iron kettle")', "stock", {"item": "iron kettle"}),
        ("stock('iron kettle')", "stock", {"item": "iron kettle"}),
        ('  move("a", to=-3)  ', "move", {"to": -3, "what": "a"}),
        ("move(what=True, to=2.5)", "move", {"to": 2.5, "what": True}),
        ("unknown(x=1)", "unknown", {"x": 1}),
        ("stock()", "stock", {}),
        (r'stock(item="a\d")', "stock", {"item": r"a\d"}),  # a doubtful escape is Python all the same
    ],
)
def test_pythonic_forms(line, name, read):
    (call,) = Pythonic(TOOLS).parse(line, 2).calls
    assert (call.id, call.name, json.loads(call.arguments), call.malformed) == ("call_2_0", name, read, False)


@pytest.mark.parametrize(
    "line",
    [
        'stock(item="iron kettle"',
        "stock(item=kettle)",
        'stock(item=__import__("os").getcwd())',
        'stock(item="a", item="b")',
        'stock("a", item="b")',
        'stock("a", "b")',
        "unknown(1)",
        "stock(**3)",
        "stock(item=1e999)",
        r'stock(item="\ud800")',
        "stock(item=b'a')",
        'stock(item="a") + 1',
        'stock(item="a")(3)',
        "stock(item=" + "(" * 500 + ")" * 500 + ")",
        "stock(item=" + "-" * 6000 + "1)",
        "stock(item=" + "[" * 150 + "]" * 150 + ")" * 9,
        "stock(item=" + "9" * 5000 + ")",
        "stock(item='" + "a" * MAX_CHARACTERS + "')",
        "stock(item='\0')",
    ],
)
def test_a_pythonic_line_that_is_no_call_is_kept_as_evidence(line):
    assert Pythonic(TOOLS).parse(line, 0) == ("", (ToolCall("call_0_0", line.partition("(")[0], line, malformed=True),))


@pytest.mark.parametrize("line", ["The answer is 57.", "I checked (twice)", "stock", "(stock)", "", "sum(a, b) is what you want"])
def test_prose_is_no_pythonic_call(line):
    assert Pythonic(TOOLS).parse(line, 0) == (line, ())


def test_text_and_pythonic_calls_on_lines_of_their_own():
    found = Pythonic(TOOLS).parse('Let me look.\nstock(item="mug")\nand\nmove("mug", 3)', 0)
    assert found.content == "Let me look.\nand"
    assert [(call.id, call.name) for call in found.calls] == [("call_0_0", "stock"), ("call_0_1", "move")]


def test_a_tool_that_python_cannot_name_needs_the_other_style():
    message = Message("assistant", "", (ToolCall("c", "get-weather", "{}"),))
    with pytest.raises(DataError, match="hermes"):
        Pythonic(TOOLS).write(message)
    assert Hermes(TOOLS).parse("".join(Hermes(TOOLS).write(message)), 0).calls[0].name == "get-weather"


def test_hermes_text_and_two_calls():
    block = '<tool_call>\n{"name": "stock", "arguments": {"item": "mug"}}\n</tool_call>'
    found = Hermes(TOOLS).parse(f"Let me look.\n{block}\n{block}", 1)
    assert found.content == "Let me look."
    assert found.calls == tuple(ToolCall(f"call_1_{index}", "stock", '{"item": "mug"}') for index in (0, 1))


@pytest.mark.parametrize(
    ("body", "name"),
    [
        ('{"name": "stock", "arguments": {"item": "mug"', ""),
        ('{"name": "stock", "arguments": "mug"}', "stock"),
        ('{"name": 3, "arguments": {}}', ""),
        ('{"arguments": {}}', ""),
        ('["stock"]', ""),
        ('{"name": "stock", "arguments": {"item": NaN}}', "stock"),
        ('{"name": "stock", "arguments": {"item": "\\ud800"}}', "stock"),
        ('{"name": "stock", "arguments": {"item": ' + "9" * 5000 + "}}", ""),
        ('{"name": "stock", "arguments": ' + "[" * 4000, ""),
        ('{"name": "\\ud800", "arguments": {}}', ""),
        ("x" * (MAX_CHARACTERS + 1), ""),
        ("-", ""),
    ],
)
@pytest.mark.parametrize("end", ["</tool_call>", ""])
def test_a_hermes_block_that_is_no_call_is_kept_as_evidence(body, name, end):
    assert Hermes(TOOLS).parse(f"<tool_call>{body}{end}", 0) == ("", (ToolCall("call_0_0", name, body, malformed=True),))


def test_the_tools_as_each_style_describes_them():
    assert Pythonic(TOOLS).describe() == "Tools: stock(item), move(what, to)"
    described = Hermes(TOOLS).describe()
    schemas = described.partition("<tools>\n")[2].partition("\n</tools>")[0].splitlines()
    assert [json.loads(schema)["function"]["parameters"]["required"] for schema in schemas] == [["item"], ["what", "to"]]
    assert Pythonic(()).describe() == Hermes(()).describe() == ""
