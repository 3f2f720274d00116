"""Small rewards, each beside its formula computed by hand."""

from __future__ import annotations

import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clawpipe.core.conversation.messages import Message, ToolCall, ToolSpec
from clawpipe.errors import ConfigError
from clawpipe.play.judging.base import SCORERS
from clawpipe.play.judging.rewards import cosine_length, fits_schema, follows_format, in_script, overlong, repetition


@pytest.mark.parametrize(("tokens", "value"), [(0, 0), (80, 0), (85, -0.25), (100, -1), (101, -1)])
def test_long_answers_cost_more_and_more(tokens, value):
    assert overlong(tokens, most=100, soft=20) == value


@pytest.mark.parametrize(("tokens", "value"), [(0, 2.0), (50, 1.0), (100, 0.0), (500, 0.0), (25, 1 + math.sqrt(0.5))])
def test_the_cosine_of_the_length(tokens, value):
    assert cosine_length(tokens, 100, shortest=2.0, longest=0.0) == pytest.approx(value, abs=1e-12)


@given(st.integers(0, 200), st.integers(0, 200))
def test_the_cosine_falls_with_the_length(one, other):
    shorter, longer = sorted((one, other))
    assert cosine_length(shorter, 100, 1.0, -1.0) >= cosine_length(longer, 100, 1.0, -1.0)


@pytest.mark.parametrize(
    ("text", "value"), [("", 0), ("a b", 0), ("a b c d", 0), ("a b a b a b", -0.5), ("A b, a B a b", -0.5), ("x x x x x", -2 / 3)]
)
def test_the_share_of_repeated_trigrams(text, value):
    """`a b a b a b` has the trigrams aba, bab, aba, bab: two of four are new."""
    assert repetition(text, 3) == pytest.approx(value)


def test_a_form_is_that_of_the_whole_text():
    form = re.compile(r"<think>.*</think>\d+", re.DOTALL)
    assert [follows_format(text, form) for text in ("<think>a\nb</think>4", "<think></think>4!", "4")] == [1, 0, 0]


@pytest.mark.parametrize(
    ("text", "script", "value"),
    [("abc", "Latin", 1), ("ab\u0436\u0436", "Latin", 0.5), ("12!", "Latin", 1), ("\u4e2d\u6587a", "Han", 2 / 3)],
)
def test_the_share_of_letters_of_a_script(text, script, value):
    assert in_script(text, script) == pytest.approx(value)


STOCK = ToolSpec("stock", "", {"item": "string"})


@pytest.mark.parametrize(
    ("calls", "value"),
    [
        ([], 1),
        ([ToolCall("", "stock", '{"item": "lamp"}')], 1),
        ([ToolCall("", "stock", '{"item": 3}'), ToolCall("", "stock", '{"item": "lamp"}')], 0.5),
        ([ToolCall("", "price", '{"item": "lamp"}')], 0),
        ([ToolCall("", "", "stock(", malformed=True)], 0),
    ],
)
def test_the_share_of_calls_that_fit(calls, value):
    assert fits_schema(calls, [STOCK]) == value


def test_where_no_tools_are_known_calls_that_can_be_read_fit():
    assert fits_schema([ToolCall("", "any", "{}"), ToolCall("", "", "x", malformed=True)], []) == 0.5


def rollout(*texts: str) -> dict:
    messages = [Message("user", "?").as_dict(), *(Message("assistant", text).as_dict() for text in texts)]
    turns = [{"start": 10 * n, "end": 10 * n + 4, "kind": "main", "finish_reason": "stop"} for n in range(len(texts))]
    return {"source": "rollout", "messages": messages, "turns": turns, "kinds": None, "tokens": "recorded", "tools": None}


@pytest.mark.parametrize(
    ("name", "options", "value"),
    [
        ("overlong", {"most": 8, "soft": 4}, -1.0),
        ("cosine-length", {"most": 16}, 0.5),
        ("repetition", {"words": 1}, -0.5),
        ("format", {"pattern": "b a"}, 1.0),
        ("tool-schema", {}, 1.0),
        ("script", {}, 1.0),
    ],
)
def test_a_config_names_them(name, options, value):
    """Of two turns of four tokens each: `a b` and `b a`."""
    scorer = SCORERS.make(name, options)
    (score,) = scorer.score({}, rollout("a b", "b a"))
    assert (scorer.name, score.turn, score.value) == (name, None, pytest.approx(value))


@pytest.mark.parametrize(("name", "options"), [("overlong", {"most": 8, "soft": 4}), ("cosine-length", {"most": 16})])
def test_text_has_no_reward_for_its_tokens(name, options):
    """An endpoint's rollouts, however long, had the reward of no tokens at all."""
    text = rollout("a b", "b a") | {"tokens": "none", "turns": []}
    assert list(SCORERS.make(name, options).score({}, text)) == []


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("overlong", {"most": 8, "soft": 9}),
        ("cosine-length", {"most": 0}),
        ("format", {"pattern": "("}),
        ("script", {"script": "Klingon"}),
        ("repetition", {"words": 0}),
    ],
)
def test_options_without_a_meaning_are_refused(name, options):
    with pytest.raises(ConfigError):
        SCORERS.make(name, options)
