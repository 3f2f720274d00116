"""The list of secrets and of what only looks like one, beside the rules."""

import runpy
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture(scope="module")
def measured():
    sys.path.insert(0, str(BENCHMARKS))
    try:
        script = runpy.run_path(str(BENCHMARKS / "redaction.py"))
    finally:
        sys.path.remove(str(BENCHMARKS))
    return script["measured"]()


def test_nearly_all_kinds_of_secrets_are_caught_in_every_place(measured):
    assert measured["kinds"] >= 120
    assert measured["places"] == 5
    assert measured["caught"] >= 0.9 * measured["kinds"], measured["missed"]


def test_what_only_looks_like_a_secret_stays_nearly_always(measured):
    assert measured["look_alikes"] >= 100
    assert measured["touched"] <= 2, measured["taken"]
