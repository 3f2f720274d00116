"""What a line may be: hostile ones, each with its reason, and whatever the standard library reads without a quirk."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clawpipe.data.importers.strict_json import MAX_DEPTH, RefusedError, parse_object

HOSTILE = {
    "NaN or an infinite number": [b'{"a": NaN}', b'{"a": [-Infinity, 1]}'],
    "not JSON": [b'{"a": 1', b"nonsense", b'{"a": 1,}', b'{"a": 1}{"b": 2}', b'{"a": "\x00"}', b"\x00", b"{'a': 1}"],
    "blank line": [b"", b"   ", b"\t"],
    "byte order mark": [b'\xef\xbb\xbf{"a": 1}'],
    "not UTF-8": [b'{"a": "\xff"}', b'{"a": "\xed\xa0\x80"}'],
    "not a JSON object": [b"[1]", b"3", b'"text"', b"null"],
    "half a surrogate pair": [rb'{"a": "\ud800"}'],
    "number out of range": [b'{"a": 1e400}', b'{"a": [-1e400]}'],
    "NUL in a text": [rb'{"a": "x\u0000y"}'],
    "nested too deeply": [b'{"a": ' + b"[" * 5000 + b"]" * 5000 + b"}", b'{"a":' * (MAX_DEPTH + 1) + b"1" + b"}" * (MAX_DEPTH + 1)],
    "key given twice": [
        b'{"a": 1, "a": 2}',
        b'{"a":1,"a":1}',
        b'{"a": {"b": 1, "b" : 2}}',
        b'{"a" :1, "b": 2, "a":3}',
        b'{"x": "\\":", "a": 1, "a": 2}',
        b'{"c\\\\": 1, "c\\\\": 2}',
        b'{"m": [1, {"k": 1, "k": 2}]}',
    ],
}


@pytest.mark.parametrize(("reason", "line"), [(reason, line) for reason, lines in HOSTILE.items() for line in lines])
def test_a_hostile_line_is_refused_for_its_reason(reason, line):
    with pytest.raises(RefusedError, match=f"^{reason}$"):
        parse_object(line)


@pytest.mark.parametrize(
    "line", [rb'{"a": "\\u0000"}', b'{"a": "\\": 1"}', b'{"sql": "drop table x; --"}', b'{"a\\\\": 1, "a": 2}']
)
def test_a_strange_but_honest_line_is_read(line):
    assert parse_object(line) == json.loads(line)


_TEXT = st.text(st.characters(exclude_characters="\x00", exclude_categories=["Cs"]))
_SCALAR = st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False) | _TEXT
_VALUE = st.recursive(_SCALAR, lambda part: st.lists(part) | st.dictionaries(_TEXT, part), max_leaves=20)


@given(st.dictionaries(_TEXT, _VALUE), st.sampled_from([None, 1]), st.sampled_from([(",", ":"), (", ", ": "), (" , ", " : ")]))
def test_every_object_that_json_writes_is_read_back(value, indent, separators):
    line = json.dumps(value, separators=separators).encode()
    assert parse_object(line) == value


@given(st.dictionaries(_TEXT, _SCALAR, min_size=1), _TEXT.map(json.dumps))
def test_a_repeated_key_is_always_seen(value, space):
    key = next(iter(value))
    inner = json.dumps(value)
    line = f"{inner[:-1]}, {json.dumps(key)}: {space}}}".encode()
    with pytest.raises(RefusedError, match="key given twice"):
        parse_object(line)


@pytest.mark.parametrize("number", [2**64, -(2**63) - 1, 10**25, 10**300])
def test_an_integer_that_would_be_rounded_is_refused(number):
    with pytest.raises(RefusedError, match="beyond 64 bits"):
        parse_object(b'{"a": {"id": [%d]}}' % number)


@pytest.mark.parametrize("value", [2**64 - 1, -(2**63), "1" * 30, 0.1234567890123456789, {"1" * 30: 1}])
def test_other_long_numbers_are_kept(value):
    assert parse_object(json.dumps({"a": value}).encode()) == {"a": value}
