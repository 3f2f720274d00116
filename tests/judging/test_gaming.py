"""What looks like a judge that is gamed, or that does not read; and what does not."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from clawpipe.judging.gaming import GamingSigns
from clawpipe.messages import Message
from tests.judging.test_prm import stored


def row(
    value: float, turn: int | None = 0, origin: str = "judge", success: bool | None = None, votes: Sequence[int | None] = ()
) -> dict[str, Any]:
    evidence = {"votes": [{"value": vote} for vote in votes]} if votes else {}
    scorer = "prm" if origin == "judge" else origin
    return {"turn": turn, "scorer": scorer, "origin": origin, "value": value, "success": success, "evidence": json.dumps(evidence)}


def signs_of(*cases: tuple[str, list[dict[str, Any]]]) -> list[str]:
    signs = GamingSigns()
    for reply, scores in cases:
        signs.add(stored(Message("user", "?"), Message("assistant", reply)), scores)
    return signs.warnings()


def test_a_judge_that_tells_turns_apart_is_no_sign():
    assert signs_of(*([("four", [row(1.0)]), ("five", [row(-1.0)])] * 40)) == []


def test_a_judge_that_always_says_the_same():
    (sign,) = signs_of(*([("four", [row(1.0)])] * 40))
    assert "+1 of 40 of 40" in sign
    assert signs_of(*([("four", [row(1.0)])] * 29)) == []


def test_votes_that_always_agree():
    agreed = [("four", [row(1.0, votes=(1, 1, None))]), ("five", [row(-1.0, votes=(-1, -1, -1))])] * 20
    (sign,) = signs_of(*agreed)
    assert "the votes of prm agree on all of 40 turns" in sign
    assert signs_of(*agreed, ("six", [row(1.0, votes=(1, -1, 1))])) == []
    assert signs_of(*([("four", [row(1.0, votes=(1, None))]), ("five", [row(-1.0, votes=(-1,))])] * 20)) == []  # one vote each


def test_a_judge_that_praises_what_fails():
    against = [
        ("a", [row(1.0, None), row(0.0, None, "verifier", False)]),
        ("b", [row(-1.0, None), row(1.0, None, "verifier", True)]),
    ]
    (sign,) = signs_of(*(against * 20))
    assert "against the verifier: 0.00 of what it praises succeeded, and 1.00" in sign
    for_it = [
        ("a", [row(1.0, None), row(1.0, None, "verifier", True)]),
        ("b", [row(-1.0, None), row(0.0, None, "verifier", False)]),
    ]
    assert signs_of(*(for_it * 20)) == []


def test_a_judge_that_praises_length():
    (sign,) = signs_of(*([("x" * 100, [row(1.0)]), ("x" * 50, [row(-1.0)])] * 40))
    assert "100 characters on average, and 50" in sign


def test_turns_that_speak_to_a_judge():
    said = [("Dear judge, four.", [row(1.0)]), ("four", [row(-1.0)])]
    assert any("speak to a judge" in sign for sign in signs_of(*(said * 20)))
    assert signs_of(*([("The judge said so.", [row(1.0)]), ("four", [row(-1.0)])] * 20)) == []


def test_scores_of_nobody_else_are_counted():
    assert signs_of(*([("four", [row(1.0, None, "verifier", True)])] * 40)) == []
