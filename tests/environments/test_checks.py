"""What checks could mistake: letters that are articles, signs and separators of numbers, numbers in calls, slow patterns."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clawpipe.core.basics.patterns import OUT_OF_TIME
from clawpipe.core.conversation.messages import Message, ToolCall
from clawpipe.play.environments.answers import last_number
from clawpipe.play.environments.checks import CHECKS, unusable, why_wrong
from clawpipe.play.environments.prompts import PromptsEnvironment

SLOW, TEXT = "^(b|b)*$", "b" * 40 + "!"


def said(text: str, *calls: ToolCall) -> Message:
    return Message("assistant", text, calls)


def accepts(check: str, reply: str, answer: Any) -> bool:
    return CHECKS.load(check)(said(reply), answer)


@pytest.mark.parametrize(
    ("reply", "answer", "right"),
    [
        ("A", "A", True),
        ("(a)", "A", True),
        ("a)", "A", True),
        ("**A**.", "A", True),
        ("\uff21", "A", True),
        ("", "A", False),
        ("...", "A", False),
        ("the", "A", False),
        ("B", "A", False),
        ("An", "an", True),
        ("", "the", False),
        ("i.", "I.", True),
        ("vitamin", "Vitamin A", False),
        ("C", "A, C", False),
        ("c", "A and C", False),
        ("A C", "A, C", True),
        ("an apple", "Apple", True),
        ("To Kill a Mockingbird", "to kill A Mockingbird", True),
        ("5", "-5", False),
        ("\u22125", "-5", True),
        ("35", "3.5", False),
        ("1,000", "1000", True),
        ("\u201cParis\u201d\u2026", "paris", True),
        ("", "\U0001f642", False),
    ],
)
def test_normalizing_leaves_the_answer_itself(reply: str, answer: str, right: bool):
    assert unusable("normalized", answer) == ""
    assert accepts("normalized", reply, answer) is right


@pytest.mark.parametrize(
    ("reply", "right"),
    [
        ("The answer is A.", True),
        ("I say A.", True),
        ("A is right, for the others are not", True),
        ("I choose option A because it fits", True),
        ("A) Paris", True),
        ("Answer:A", True),
        ("(A)Paris", True),
        ("A\nThe others are wrong", True),
        ("A dog", False),
        ("It is a dog.", False),
        ("A cat and a dog", False),
        ("I say B.", False),
        ("", False),
    ],
)
def test_a_reply_contains_the_letter_and_no_article(reply: str, right: bool):
    assert accepts("contains", reply, "A") is right


@pytest.mark.parametrize("reply", ["", " \n", "\u200b"])
def test_an_empty_reply_never_wins(reply: str):
    for check in ("exact", "normalized", "contains", "numeric", "regex"):
        assert not any(accepts(check, reply, answer) for answer in ("", "A", "?", ".*", "^$", "the", " \n", 0, "\u200b"))
    assert not accepts("json_schema", reply, {})
    assert not accepts("tool_call", reply, [])


@pytest.mark.parametrize(
    ("check", "answer", "reason"),
    [
        *(("normalized", answer, "nothing is left") for answer in ("?", "\u2026", "\uff1f", " ", "+")),
        ("contains", "\u3002", "nothing is left"),
        ("exact", " ", "empty"),
        ("numeric", "minus", "no number"),
        ("state", [], "result"),
        ("tool_call", {"name": "stock", "arguments": '{"item": 1}'}, "no object"),
        ("regex", "(", "unterminated"),
        *((check, ["Paris", "Rome"], "a list") for check in ("exact", "normalized", "contains", "numeric", "regex")),
        ("regex", {"name": "stock"}, "an object"),
    ],
)
def test_an_answer_of_which_nothing_is_left_is_unusable(check: str, answer: Any, reason: str):
    assert reason in unusable(check, answer)


@given(st.text())
def test_a_usable_answer_is_right_and_silence_is_not(answer: str):
    for check in ("exact", "normalized", "contains"):
        if not unusable(check, answer):
            assert accepts(check, answer, answer)
            assert not accepts(check, "", answer)


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("It is \u22125.", -5),
        ("It is \uff0d5.", -5),
        ("between 5\u20137", 7),
        ("5e\u22121", 0.5),
        ("1\u202f234\u202f567", 1234567),
        ("1\u00a0234", 1234),
        ("1\u2019234.5", 1234.5),
        ("1_000", 1000),
        ("1{,}234", 1234),
        ("1 234", 234),
        ("\u0663\u066b\u0665", 3.5),
        ("\uff11\uff12", 12),
        ("-$5", -5),
        ("x\u00b2", None),
        ("1e999", None),
        ("\u2212", None),
    ],
)
def test_numbers_are_read_as_people_write_them(text: str, number: float | None):
    assert last_number(text) == number


@given(st.integers(-(10**9), 10**9), st.sampled_from("-\u2212\u2013\uff0d"), st.sampled_from("0\u0660\u0966\uff10"))
def test_a_sign_counts_in_any_script(value: int, sign: str, zero: str):
    digits = "".join(chr(ord(zero) + int(digit)) for digit in str(abs(value)))
    text = f"it is {sign if value < 0 else ''}{digits}."
    assert accepts("numeric", text, value)
    assert accepts("numeric", text, -value) is (value == 0)


@pytest.mark.parametrize(
    ("made", "wanted", "right"),
    [
        ('{"count": 2.0}', {"count": 2}, True),
        ('{"count": 2}', {"count": 2.0}, True),
        ('{"count": [1e2, {"x": -0.0}]}', {"count": [100, {"x": 0}]}, True),
        ('{"count": "2"}', {"count": 2}, False),
        ('{"count": true}', {"count": 1}, False),
        ('{"count": false}', {"count": 0.0}, False),
        ('{"count": 2.5}', {"count": 2}, False),
        ('{"count": 9007199254740993}', {"count": 9007199254740992.0}, False),
        ("{}", None, True),
    ],
)
def test_numbers_in_calls_are_equal_by_value(made: str, wanted: Any, right: bool):
    call = ToolCall("c", "take", made)
    assert CHECKS.load("tool_call")(said("", call), {"name": "take", "arguments": wanted}) is right


def test_results_are_compared_as_calls_are():
    answer = {"name": "count", "result": {"n": 1, "ok": True}}
    replies = [json.dumps([text]) for text in ('{"ok": true, "n": 1.0}', '{"ok": 1, "n": 1}', '{"n": true, "ok": true}')]
    assert [accepts("state", reply, answer) for reply in replies] == [True, False, False]


def test_words_instead_of_a_call_may_be_what_is_wanted():
    assert accepts("tool_call", "No tool is needed.", [])
    assert not CHECKS.load("tool_call")(said("", ToolCall("c", "take", "{}")), [])


def test_a_pattern_out_of_time_fails_with_its_reason(tmp_path, caplog):
    file = tmp_path / "prompts.jsonl"
    file.write_text("".join(json.dumps({"prompt": f"say {n}", "answer": SLOW}) + "\n" for n in range(20)))
    made = PromptsEnvironment(str(file), check="regex")
    [item] = made.items("train", 1, 0)
    outcomes = [made.verify(item, [*item.messages, said(text)]) for text in (TEXT, "bbb", TEXT + "!")]
    assert [outcome.success for outcome in outcomes] == [False, True, False]
    assert [outcome.reason for outcome in outcomes] == [OUT_OF_TIME, "regex", OUT_OF_TIME]
    assert len([text for text in caplog.messages if "more than" in text]) == 1
    assert why_wrong("regex", said("b"), "a") == "not regex"
