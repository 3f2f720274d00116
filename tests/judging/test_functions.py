"""A judge that is a Python function of the user's."""

from __future__ import annotations

import json

import pytest

from clawpipe.cli import main
from clawpipe.core.conversation.messages import Message, ToolCall
from clawpipe.errors import ConfigError, NotFoundError
from clawpipe.play.judging.base import SCORERS
from tests.judging.test_prm import stored

ROW = stored(
    Message("user", "How many?"),
    Message("assistant", "Let me see.", (ToolCall("1", "stock", "{}"),)),
    Message("tool", "3", tool_call_id="1", name="stock"),
    Message("assistant", "3."),
    Message("user", "Thanks!"),
)
CODE = """
seen = []

def compute_reward(prompt, response, next_feedback):
    seen.append((prompt, response, next_feedback))
    return None if next_feedback == "3" else 0.5

def batched(triples):
    return [float(len(response)) for _, response, _ in triples]

def too_few(triples):
    return []

def says_good(prompt, response, next_feedback):
    return "good"

def says_nan(prompt, response, next_feedback):
    return float("nan")

async def later(prompt, response, next_feedback):
    return 1

number = 3
"""


@pytest.fixture
def make(tmp_path):
    (tmp_path / "mine.py").write_text(CODE)

    def make_named(name, **options):
        return SCORERS.make("function", {"function": f"{tmp_path / 'mine.py'}:{name}"} | options)

    return make_named


def test_it_gets_the_request_the_turn_and_what_came_next(make):
    judge = make("compute_reward")
    assert [(score.turn, score.value) for score in judge.score({}, ROW)] == [(1, 0.5), (None, 0.5)]
    assert judge.function.__globals__["seen"] == [("How many?", "Let me see.\nstock({})", "3"), ("How many?", "3.", "Thanks!")]


def test_a_batched_one_is_called_once(make):
    assert [score.value for score in make("batched", batched=True).score({}, ROW)] == [21.0, 2.0, 11.5]


@pytest.mark.parametrize(("name", "said"), [("says_good", "'good'"), ("says_nan", "nan")])
def test_what_is_no_number_is_said(make, name, said, tmp_path, capsys):
    with pytest.raises(ValueError, match=f"the function returned {said}, and not a finite number or None"):
        list(make(name).score({}, ROW))
    (tmp_path / "chats.jsonl").write_text(json.dumps({"messages": ROW["messages"]}) + "\n")
    option = f"function={tmp_path / 'mine.py'}:{name}"
    with pytest.raises(SystemExit) as end:
        main.run(["judge", "try", str(tmp_path / "chats.jsonl"), "--scorer", "function", "--option", option])
    assert end.value.code == 2
    shown = capsys.readouterr().err
    assert f"the judge raised ValueError: the function returned {said}" in shown
    assert "Traceback" not in shown


def test_an_asynchronous_function_is_refused(make):
    with pytest.raises(ConfigError, match="asynchronous"):
        make("later")


def test_rewards_that_are_too_few_are_no_rewards(make):
    with pytest.raises(ValueError, match="0 rewards for 2 turns"):
        list(make("too_few", batched=True).score({}, ROW))


def test_what_cannot_be_called_is_refused(make):
    with pytest.raises(ConfigError, match="no function"):
        make("number")
    with pytest.raises(NotFoundError):
        make("missing")
