"""The figures of the benchmark of reactions, on rows whose counts are known."""

import runpy
from pathlib import Path

import pytest

SCRIPT = runpy.run_path(str(Path(__file__).parents[2] / "benchmarks" / "reactions.py"))


def row(text, label, second=None, language="en"):
    return {"id": text, "language": language, "reply": "It is 12.", "text": text, "label": label, "second": second}


ROWS = [
    row("Thanks!", "praise", "praise"),
    row("Perfect.", "none", "praise"),
    row("That is wrong.", "blame", "blame"),
    row("You will hear from my lawyer", "blame", "none"),
    row("And in Oslo?", "none", "none"),
]


def test_precision_and_recall_count_each_sign():
    found = SCRIPT["measured"](ROWS)
    assert (found["of_precision_praise"], found["of_recall_praise"]) == ([1, 2], [1, 1])
    assert (found["of_precision_blame"], found["of_recall_blame"]) == ([1, 1], [1, 2])
    assert [one["id"] for one in found["wrong"]] == ["Perfect."]
    assert found["by_language"]["en"]["n"] == 5


def test_kappa_is_agreement_beyond_chance():
    # agreed 3 of 5; by chance (1 * 2 + 2 * 1 + 2 * 2) / 25 = 0.32
    assert SCRIPT["kappa"](ROWS) == pytest.approx((0.6 - 0.32) / (1 - 0.32))
    assert SCRIPT["kappa"]([row("Thanks!", "praise")]) is None


def test_the_half_that_was_read_meets_the_claims():
    figures = SCRIPT["measured"](SCRIPT["_rows"](SCRIPT["HERE"] / "read.jsonl"))
    assert SCRIPT["missed_claims"](figures) == []
