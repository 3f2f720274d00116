"""Users' regular expressions: Python's own answers, and a limit on the time of each search."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clawpipe.core.basics.patterns import SECONDS, fits, occurs
from clawpipe.core.basics.schemas import argument_error, check_schema

SLOW, TEXT = "^(a|a)*$", "a" * 40 + "!"
PATTERNS = ["a", "^a", "a$", r"\d+", "(a|b)+c?", "[^a-c]", "(?i)AB", r"\bab\b", "a.b", "(?s)a.b", "(?:|a){3}", r"(a)\1", "", "[[a]"]


@pytest.mark.parametrize("pattern", PATTERNS)
@given(text=st.text("abcAB1 \n["))
@pytest.mark.filterwarnings("ignore:Possible nested set:FutureWarning")
def test_answers_are_those_of_pythons_engine(pattern: str, text: str):
    assert occurs(pattern, text) is (re.search(pattern, text) is not None)
    assert fits(re.compile(pattern, re.DOTALL), text) is (re.fullmatch(pattern, text, re.DOTALL) is not None)


def test_a_search_ends_without_an_answer_when_its_time_is_up(caplog):
    slow = "^(c|c)*$"
    assert occurs(slow, "c" * 40 + "!") is None
    assert fits(re.compile(slow), "c" * 41 + "!") is None
    assert [text.startswith(repr(slow)) for text in caplog.messages] == [True]  # and not twice
    assert f"{SECONDS:g} s" in caplog.text


@pytest.mark.parametrize("pattern", ["(", "a{2,1}", "[z-a]", "*"])
def test_what_is_no_pattern_is_a_value_error(pattern: str):
    with pytest.raises(ValueError, match=r"\w"):
        occurs(pattern, "")


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": {"name": {"type": "string", "pattern": SLOW}}},
        {"patternProperties": {SLOW: {"type": "string"}}},
        {"additionalProperties": False, "properties": {"name": {}}, "patternProperties": {SLOW: {"type": "string"}}},
    ],
)
def test_arguments_of_a_slow_pattern_do_not_fit(schema):
    check_schema(schema)
    assert "took more than" in argument_error(schema, {"name": TEXT, TEXT: "x"})


def test_property_names_are_told_apart_by_patterns():
    schema = {"properties": {"a": {}}, "patternProperties": {"^x": {"type": "integer"}}, "additionalProperties": False}
    assert argument_error(schema, {"a": 1, "x1": 2}) == ""
    assert argument_error(schema, {"x1": "2"}) == "x1: '2' is not of type 'integer'"
    assert "'b' was unexpected" in argument_error(schema, {"b": 1})
    assert argument_error(schema | {"additionalProperties": {"type": "string"}}, {"b": 1}) == "b: 1 is not of type 'string'"
