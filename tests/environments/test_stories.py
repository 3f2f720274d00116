"""Stories that are sums: what they ask is computed by hand or by Python."""

from __future__ import annotations

import ast
import json
import operator
import re
from collections import Counter

import pytest

from clawpipe.core.conversation.messages import Message
from clawpipe.errors import ConfigError
from clawpipe.play.environments.discovery import load_environment
from clawpipe.play.environments.stories import StoriesEnvironment
from clawpipe.play.rollouts.levels import level_of

STORIES = StoriesEnvironment(levels=4)
ITEMS = STORIES.items("train", 400, 0)
SIGNS = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.floordiv}


def value(tree: ast.expr) -> int:
    if isinstance(tree, ast.BinOp):
        return SIGNS[type(tree.op)](value(tree.left), value(tree.right))
    return ast.literal_eval(tree)


def test_each_sum_is_right_and_begins_where_the_last_one_ended():
    for item in ITEMS:
        [number] = re.findall(r"has (\d+) ", item.messages[0].content)[:1]
        truth = json.loads(item.truth)["truth"]
        for line in truth["sums"]:
            text, result = line.split(" = ")
            assert text.startswith(f"{number} ")
            assert value(ast.parse(text, mode="eval").body) == int(result)
            number = result
        assert int(number) == truth["answer"]
        assert 0 < truth["answer"] <= 500


SENTENCES = {r"gets (\d+) more": "{n} + {0}", r"gives (\d+) ": "{n} - {0}", r"(\d+) bags with (\d+)": "{n} + {0} * {1}"}
SENTENCES |= {
    "then has twice as": "{n} * 2",
    "three times as": "{n} * 3",
    "four times as": "{n} * 4",
    r"equally among (\d)": "{n} / {0}",
}


def test_a_sum_is_what_its_sentence_says():
    for item in ITEMS:
        number, *told = item.messages[0].content.split(". ")[:-1]
        now = int(re.findall(r"\d+", number)[0])
        for sentence, line in zip(told, json.loads(item.truth)["truth"]["sums"], strict=True):
            [(pattern, sum_)] = [one for one in SENTENCES.items() if re.search(one[0], sentence)]
            text, result = line.split(" = ")
            assert text == sum_.format(*re.findall(r"\d+", sentence), n=now), pattern
            now = int(result)


def test_levels_are_the_numbers_of_steps():
    for item in ITEMS:
        assert len(json.loads(item.truth)["truth"]["sums"]) == level_of(item.slice)
    counts = Counter(item.slice for item in ITEMS)
    assert set(counts) == {f"story/level-{level}" for level in (1, 2, 3, 4)}
    assert min(counts.values()) > 60


def test_there_are_thousands_and_none_is_on_both_sides():
    train = {item.identity for item in STORIES.items("train", 3000, 1)}
    held = {item.identity for item in STORIES.items("heldout", 3000, 2)}
    assert len(train) == len(held) == 3000
    assert not train & held


def test_its_own_answer_is_right_and_another_is_not():
    for item in ITEMS[:50]:
        known = STORIES.hindsight(item, item.messages)
        assert STORIES.verify(item, [*item.messages, *known.demonstration]).success
        answer = json.loads(item.truth)["truth"]["answer"]
        assert not STORIES.verify(item, [*item.messages, Message("assistant", f"The answer is {answer + 1}.")]).success
        assert STORIES.verify(item, [*item.messages, Message("assistant", f"{answer + 1}? No: {answer}.00")]).success
        assert not STORIES.verify(item, [*item.messages, Message("assistant", "I do not know.")]).success


@pytest.mark.parametrize("levels", [0, 5])
def test_other_levels_are_refused(levels):
    with pytest.raises(ConfigError, match=r"no \d levels"):
        load_environment("stories", {"levels": levels})
