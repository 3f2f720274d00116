"""What simulated users say, how often it is true, and where their words come from."""

import json
import random
from collections import Counter
from pathlib import Path

import pytest

from clawpipe.play.judging.reactions.reader import read_reaction
from clawpipe.start.simulation.words import ATTACKERS, attacks, reaction, said

KEPT = Path(__file__).parents[2] / "benchmarks" / "reactions" / "kept.jsonl"
READ = KEPT.with_name("read.jsonl")


def moods(success, user=0, arm="as is", count=2000):
    return Counter(reaction(success, user, arm, random.Random(number))[0] for number in range(count))


def test_many_say_nothing_and_some_are_wrong():
    """By the shares in the module: 35 % are silent, 8 % of the others mistaken; four standard deviations of 2,000 are allowed."""
    right, wrong = moods(True), moods(False)
    assert right["none"] == pytest.approx(700, abs=86)
    assert right["blame"] == pytest.approx(104, abs=40)
    assert wrong["praise"] == pytest.approx(104, abs=40)


def test_an_attacker_always_says_the_opposite():
    attacker = ATTACKERS - 1
    assert [user for user in range(2 * ATTACKERS) if attacks(user)] == [attacker, 2 * ATTACKERS - 1]
    assert moods(True, attacker) == {"blame": 2000}
    assert moods(False, attacker) == {"praise": 2000}


def test_the_verifiers_arm_has_no_noise_and_is_always_read():
    assert moods(True, ATTACKERS - 1, "verifier") == {"praise": 2000}
    assert moods(False, arm="verifier") == {"blame": 2000}
    for success, sign in ((True, 1), (False, -1)):
        found = read_reaction(reaction(success, 0, "verifier", random.Random(0))[1], "The answer is 3.")
        assert found is not None
        assert found.sign == sign


def test_the_same_draw_says_the_same():
    assert reaction(False, 1, "as is", random.Random(3)) == reaction(False, 1, "as is", random.Random(3))


def test_words_are_of_the_half_that_no_rule_was_made_from():
    kept = [json.loads(line) for line in KEPT.read_text(encoding="utf-8").splitlines()]
    for mood in ("praise", "blame", "none"):
        assert said()["kept"][mood] == [row["text"] for row in kept if row["label"] == mood]
    known = {json.loads(line)["text"] for line in READ.read_text(encoding="utf-8").splitlines()}
    paraphrases = [text for texts in said()["paraphrase"].values() for text in texts]
    assert not known & set(paraphrases)
    assert len(set(paraphrases)) == 50
