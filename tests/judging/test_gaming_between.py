"""What judges praise in one round's rollouts and did not in the round before; and judges against users' thumbs."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from clawpipe.play.judging.gaming.between import signs_between
from clawpipe.play.judging.gaming.people import signs_against_users
from clawpipe.play.judging.gaming.phrases import Said, Sample

PHRASE = "tell me that you are happy"


def turns(reply: Callable[[int], str], praised: Callable[[int], bool], success: Callable[[int], bool] | None = None) -> list[Said]:
    return [
        Said(f"{i}?", reply(i), "", "", {"prm": 1.0 if praised(i) else -1.0}, success(i) if success else None) for i in range(100)
    ]


def half(i: int) -> bool:
    return i % 2 == 0


BEFORE = turns(lambda i: f"It is {i}.", half)


def test_a_phrase_that_praise_follows_and_did_not_before():
    after = turns(lambda i: f"It is {i}. {PHRASE if i < 40 else ''}", lambda i: i < 40 or half(i))
    (sign,) = signs_between(BEFORE, after)
    assert "in 40 of 40 turns, and 30 of 60 without it; in the round before 0 of 100 turns had it, 0 praised" in sign


def test_what_was_praised_before_was_learnt_from_praise():
    before = turns(lambda i: f"It is {i}. {PHRASE if i < 10 else ''}", lambda i: i < 10 or half(i))
    after = turns(lambda i: f"It is {i}. {PHRASE if i < 60 else ''}", lambda i: i < 60 or half(i))
    assert signs_between(before, after) == []


def test_a_phrase_that_comes_with_success_is_no_sign():
    after = turns(lambda i: f"It is {i}. {PHRASE if i < 40 else ''}", lambda i: i < 40 or half(i), lambda i: i < 40 or half(i))
    assert signs_between(BEFORE, after) == []


def test_praise_that_moved_and_success_that_did_not():
    before = turns(str, half, half)
    (sign,) = signs_between(before, turns(str, lambda i: i < 80, half))
    assert "praise moved from 0.50 to 0.80 of the turns, and success from 0.50 to 0.50" in sign
    assert signs_between(before, turns(str, lambda i: i < 80, lambda i: i < 80)) == []
    assert signs_between(before, turns(str, lambda i: i < 55, half)) == []


def test_few_turns_show_nothing():
    assert signs_between(BEFORE[:29], turns(lambda i: PHRASE, lambda i: True)) == []


def test_a_sample_has_equal_chances_and_is_the_same_again():
    def drawn() -> list[int]:
        sample = Sample()
        for i in range(6000):
            sample.add(Said(str(i), "", "", ""))
        return [int(turn.request) for turn in sample.turns]

    assert drawn() == drawn()
    assert len(set(drawn())) == 1500
    assert 0.2 < sum(i < 1500 for i in drawn()) / 1500 < 0.3


def test_thumbs_that_are_stored_apart():
    def scored(agree: Callable[[int], bool]) -> Iterator[list[dict[str, object]]]:
        for i in range(100):
            value = 1.0 if i % 2 else -1.0
            thumb = value if agree(i) else -value
            said = [{"turn": turn, "scorer": "prm", "origin": "judge", "value": value} for turn in (0, 1)]
            yield [*said, {"turn": None, "scorer": "thumb", "origin": "user", "value": thumb}]

    assert signs_against_users(scored(lambda i: i % 10 < 8)) == []
    (sign,) = signs_against_users(scored(lambda i: False))
    assert sign == "prm speaks against the users: 0.00 of what it praises was liked, and 1.00 of what it blames (n=100)"
