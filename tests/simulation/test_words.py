"""What simulated users say, and whether rules that know nothing of them understand it."""

import random
from collections import Counter

import pytest

from clawpipe.environments.base import Outcome
from clawpipe.environments.shop import ShopEnvironment
from clawpipe.judging.rules import RulesJudge
from clawpipe.messages import Message
from clawpipe.simulation.words import SENTENCES, reaction

GOALS = ShopEnvironment().items("train", 400, 0)
RIGHT = Outcome(1.0, True, "right call, right answer", {})
WRONG_TOOL = Outcome(0.1, False, "wrong tool", {})
NO_CALL = Outcome(0.0, False, "no call", {})


def moods(outcome: Outcome) -> Counter[str]:
    return Counter(reaction(goal, outcome, random.Random(number))[0] for number, goal in enumerate(GOALS))


def test_most_users_thank_for_what_they_wanted():
    """By the shares in the module: 12 % are silent, 4 % mistaken; four standard deviations of 400 draws are allowed."""
    right, wrong = moods(RIGHT), moods(NO_CALL)
    assert right["thanks"] == pytest.approx(0.84 * 400, abs=30)
    assert wrong["thanks"] == pytest.approx(0.04 * 400, abs=16)
    assert right["silence"] == wrong["silence"] == pytest.approx(0.12 * 400, abs=26)


def test_only_who_was_understood_halfway_corrects():
    assert moods(WRONG_TOOL)["correction"] > 100
    assert moods(NO_CALL)["correction"] == 0


def test_the_same_draw_says_the_same():
    assert reaction(GOALS[0], NO_CALL, random.Random(3)) == reaction(GOALS[0], NO_CALL, random.Random(3))


@pytest.mark.parametrize(("mood", "value"), [("thanks", 1), ("correction", -1), ("repetition", -1), ("complaint", -1)])
def test_the_shipped_rules_understand_most_ways_to_put_it(mood, value):
    """They may miss some, as they do of people; none may be taken for its opposite."""
    found = [
        judged(words.format(question="How much is the oak fork?", subject="the oak fork", wanted="the price"))
        for words in SENTENCES[mood]
    ]
    assert found.count(-value) == 0
    assert found.count(value) >= 0.6 * len(found)  # what is put as a request has no verdict


def test_the_shipped_rules_have_no_verdict_on_who_says_nothing():
    assert {judged(words) for words in SENTENCES["silence"]} == {None}


def judged(words: str) -> float | None:
    messages = [Message("user", "How much is the oak fork?"), Message("assistant", "The answer is 3."), Message("user", words)]
    row = {"messages": [one.as_dict() for one in messages], "turns": [], "kinds": ["main"], "tokens": "none", "source": "captured"}
    return next((score.value for score in RulesJudge().score({}, row)), None)
