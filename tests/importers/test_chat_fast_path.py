"""The quick way to read a chat line says what the careful way says, or nothing."""

import json
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clawpipe.data.importers.formats.chat_fast_path import read_fast
from clawpipe.data.importers.read.read import Reader
from clawpipe.data.importers.read.reading import Refusal
from clawpipe.data.importers.record import Origin

_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12) | st.sampled_from(
    ["", "a", " :", '":', '\\":', "\\", "../x", "{", '{"a": 1}']
)
_NULL = st.none() | _TEXT
_FUNCTION = st.fixed_dictionaries({"name": _TEXT, "arguments": _TEXT}, optional={"extra": _TEXT})
_CALL = st.fixed_dictionaries({"id": _TEXT, "function": _FUNCTION}, optional={"type": st.just("function"), "index": st.just(0)})
_ROLE = st.sampled_from(["system", "user", "assistant", "tool", "developer"])
_SAID = st.fixed_dictionaries(
    {"role": _ROLE, "content": _NULL},
    optional={
        "tool_calls": st.lists(_CALL, max_size=2) | st.none(),
        "tool_call_id": _NULL,
        "name": _NULL,
        "weight": st.integers(0, 1),
    },
)
_TOOLS = st.lists(st.dictionaries(_TEXT, st.integers(-(2**70), 2**70) | st.floats(allow_nan=False) | _TEXT, max_size=2), max_size=2)
_CHAT = st.fixed_dictionaries(
    {"messages": st.lists(_SAID, min_size=1, max_size=4)},
    optional={"session_id": _NULL, "user": _NULL, "model": _NULL, "tools": _TOOLS | _NULL, "id": _TEXT, "turn": st.just(1)},
)
_STYLE = st.fixed_dictionaries(
    {"ensure_ascii": st.booleans(), "separators": st.sampled_from([(",", ":"), (", ", ": "), (" , ", " : "), (",\t", ":\r")])}
)


def carefully(line: bytes, folder) -> list:
    with patch("clawpipe.data.importers.read.read.read_fast", return_value=None):
        return quickly(line, folder)


def quickly(line: bytes, folder) -> list:
    (folder / "a.jsonl").write_bytes(line)
    return list(Reader().file(str(folder / "a.jsonl")))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("lines")


@given(_CHAT, _STYLE)
@settings(deadline=None, max_examples=200)
def test_both_ways_read_the_same_of_what_json_writes(folder, chat, style):
    line = json.dumps(chat, **style).encode()
    assert quickly(line, folder) == carefully(line, folder)


@given(_CHAT, st.data())
@settings(deadline=None, max_examples=200)
def test_both_ways_refuse_the_same_of_what_is_broken(folder, chat, data):
    line = json.dumps(chat, separators=(",", ":"), ensure_ascii=False).encode()
    at = data.draw(st.integers(0, len(line)))
    cut = data.draw(st.integers(0, 3))
    put = data.draw(
        st.sampled_from(
            [b"", b'"', b"\\", b",", b"\\u0000", b"\\ud800", b"\xff", b"1e999", b'"role":"user",', b'"model":"m",', b"[" * 600]
        )
    )
    broken = line[:at] + put + line[at + cut :]
    if b"\n" not in broken:
        assert quickly(broken, folder) == carefully(broken, folder)


SAID = '"messages":[{"role":"user","content":"q"},{"role":"assistant","content":"a"%s}]'
LINE = "{" + SAID % "" + "%s}"


@pytest.mark.parametrize(
    "line",
    [
        LINE % ',"model":"m","model":"m"',
        LINE % ',"model":"m","m\\u006fdel":"m"',
        LINE % ',"model" :"m","model":"m"',
        LINE % ',"model"\t:"m","model":"m"',
        "{" + SAID % ',"content":"b"' + "}",
        "{" + SAID % ',"tool_calls":[{"id":"1","id":"2","function":{"name":"f","arguments":""}}]' + "}",
        "{" + SAID % ',"tool_calls":[{"id":"1","function":{"name":"f","arguments":"","arguments":""}}]' + "}",
        LINE % ',"tools":[{"a":1,"a":1}]',
        "{" + SAID % "" + "," + SAID % "" + "}",
        LINE % ',"session_id":"x\\\\","model":"m","model":"\\":"',
    ],
)
def test_a_key_given_twice_is_left_to_the_careful_way(line, folder):
    assert read_fast(line.encode(), Origin("chat", "a.jsonl", 1)) is None
    [refusal] = quickly(line.encode(), folder)
    assert isinstance(refusal, Refusal)
    assert refusal.reason == "key given twice"


@pytest.mark.parametrize("separators", [(",", ":"), (", ", ": ")])
def test_the_usual_line_takes_the_quick_way(separators, folder):
    """Else nothing here compares anything."""
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"a": "\\"b\\""}'}}
    said = [
        {"role": "system", "content": "é\n"},
        {"role": "user", "content": "q :"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "content": "{}", "tool_call_id": "c", "name": "f"},
        {"role": "assistant", "content": "a"},
    ]
    chat = {
        "messages": said,
        "session_id": "s",
        "user": "u",
        "model": "m",
        "tools": [{"type": "function", "function": {"name": "f"}}],
    }
    line = json.dumps(chat, separators=separators).encode()
    [careful] = carefully(line, folder)
    assert read_fast(line, careful.origin) == careful
