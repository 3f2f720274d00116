"""No hint of a judge says what a held-out item asks for."""

from __future__ import annotations

import json
from typing import Any

import pytest

from clawpipe.judging.hint_leaks import HintLeaks


def item(split: str, question: str, truth: object) -> dict[str, Any]:
    return {"split": split, "messages": [{"role": "user", "content": question}], "truth": json.dumps(truth)}


ITEMS = [
    item("heldout", "Who wrote\nMoby Dick?", {"answer": ["Herman Melville", "Moby Dick", "Moby Dick's author"], "check": "any"}),
    item("heldout", "When?", {"answer": "18 October 1851", "unit": 17}),
    item("heldout", "Where is it shown?", {"answer": "out of stock today"}),
    item("train", "Is it there?", {"answer": "out of stock today"}),
]


def cleared(hint: str, origin: str = "judge") -> tuple[list[str] | None, dict[str, Any]]:
    withheld = HintLeaks(ITEMS)
    [row] = withheld.cleared([{"origin": origin, "hints": [hint, "Ask for the year."]}])
    return row["hints"], withheld.details()


@pytest.mark.parametrize("hint", ["It was HERMAN  Melville.", "Say: herman-melville!", "It came out on 18\nOctober, 1851."])
def test_a_hint_that_gives_away_a_held_out_truth_is_left_out(hint: str):
    assert cleared(hint) == (["Ask for the year."], {"hints_left_out": {"gives away a held-out truth": 1}})


@pytest.mark.parametrize(
    "hint",
    [
        "Moby Dick is a whale.",  # the question says so
        "There were 17 of them.",  # too short to be told from chance
        "Say that it is out of stock today.",  # what training teaches anyway
        "Herman Melvilles are many.",  # another word
    ],
)
def test_other_hints_stay(hint: str):
    assert cleared(hint) == ([hint, "Ask for the year."], {})


def test_the_verifier_may_name_the_truth_of_its_own_item():
    assert cleared("It was Herman Melville.", origin="verifier")[1] == {}
    assert cleared("It was Herman Melville.", origin="custom")[1]


def test_a_score_without_other_hints_has_none():
    assert HintLeaks(ITEMS).cleared([{"origin": "judge", "hints": ["Herman Melville"]}]) == [{"origin": "judge", "hints": None}]
