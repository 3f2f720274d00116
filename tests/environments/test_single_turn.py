"""Environments of one question and one answer, made from `question` and `check` alone."""

from __future__ import annotations

import json
import textwrap
from dataclasses import dataclass
from datetime import date
from typing import Any

import pytest

from clawpipe.core.conversation.messages import Message
from clawpipe.errors import DataError
from clawpipe.play.environments import single_turn
from clawpipe.play.environments.discovery import list_environments, load_environment
from clawpipe.play.environments.single_turn import Question, SingleTurn
from clawpipe.play.environments.split import heldout


class Sums(SingleTurn[int]):
    name = "sums"
    weights = {"right": 1.0, "short": 0.25}  # noqa: RUF012

    def question(self, draw):
        a, b = draw.randint(1, 99), draw.randint(1, 99)
        return Question(f"{a} + {b} = ?", truth=a + b, part="small" if a + b < 100 else "large")

    def check(self, answer, truth):
        assert isinstance(truth, int)
        return {"right": answer.strip() == str(truth), "short": len(answer) < 4}


@dataclass(frozen=True)
class Span:
    first: date
    days: int


class Days(SingleTurn[Span]):
    name = "days"

    def question(self, draw):
        return Question(f"day {draw.randint(0, 9)}?", truth=Span(date(2026, 1, draw.randint(1, 28)), 3))

    def check(self, answer, truth):
        return {"right": answer == truth.first.isoformat() and truth.days == 3}


def answer(environment: SingleTurn[Any], item, text: str):
    return environment.verify(item, [*item.messages, Message("assistant", text)])


def test_value_is_the_weighted_mean_and_the_first_reward_decides():
    sums = Sums()
    [item] = sums.items("train", 1, 0)
    right = str(json.loads(item.truth)["truth"])
    for text, value, success in ((right, 1.0, True), (f"{right}   ", 0.8, True), ("no", 0.2, False), ("nothing", 0.0, False)):
        outcome = answer(sums, item, text)
        assert (outcome.value, outcome.success) == (pytest.approx(value), success), text
    assert outcome.evidence == {"right": 0.0, "short": 0.0}


def test_questions_differ_and_keep_their_split():
    sums = Sums()
    sides = {split: sums.items(split, 60, 3) for split in ("train", "heldout")}
    for split, items in sides.items():
        assert len({item.identity for item in items}) == len({item.item_id for item in items}) == 60
        assert {heldout(item.identity, 0.5) for item in items} == {split == "heldout"}
        assert {item.slice for item in items} == {"small", "large"}
        assert sums.items(split, 20, 3) == items[:20]
    assert sums.items("train", 60, 4) != sides["train"]


def test_a_truth_comes_back_as_the_type_that_it_was():
    days = Days()
    [item] = days.items("train", 1, 0)
    assert answer(days, item, json.loads(item.truth)["truth"]["first"]).success


def test_questions_that_run_out_are_an_error_and_not_a_wait():
    with pytest.raises(DataError, match=r"40 items wanted, \d found"):
        Days().items("train", 40, 0)


@pytest.mark.parametrize("rewards", [{"right": 1.0}, {"right": 1.0, "short": 2.0}, {"right": 1.0, "short": 0.0, "more": 1.0}])
def test_rewards_that_fit_no_weights_are_an_error(rewards, monkeypatch):
    monkeypatch.setattr(Sums, "check", lambda self, answer, truth: rewards)
    [item] = Sums().items("train", 1, 0)
    with pytest.raises(ValueError, match="for each of right, short"):
        answer(Sums(), item, "3")


def test_a_file_of_twelve_lines_is_listed_and_loaded(tmp_path):
    example = textwrap.dedent((single_turn.__doc__ or "").split("\n\n", 1)[1])
    (tmp_path / "sums.py").write_text(f"from clawpipe.play.environments.single_turn import Question, SingleTurn\n{example}\n")
    [info] = [info for info in list_environments([tmp_path]) if info.name == "sums"]
    environment = load_environment(info.reference, {})
    [item] = environment.items("heldout", 1, 0)
    assert environment.verify(item, [*item.messages, Message("assistant", str(json.loads(item.truth)["truth"]))]).success
    assert environment.start(item).respond(list(item.messages)) is None
    assert environment.preamble() == environment.tools() == []
