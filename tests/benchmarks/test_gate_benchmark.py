"""The simulation of the gate on a few nights, and what its recorded figures claim."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
RECORDED = json.loads((ROOT / "benchmarks" / "gate.json").read_text())


@pytest.fixture(scope="module")
def gate():
    sys.path.insert(0, str(ROOT / "benchmarks"))
    yield importlib.import_module("gate")
    sys.path.remove(str(ROOT / "benchmarks"))


def test_the_recorded_figures_match_the_shipped_gate(gate):
    command = [sys.executable, "benchmarks/gate.py", "--histories", "1", "--json"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout)
    assert {"false_promotion_30_nights", "false_promotion_clustered", "power", "within_two_nights"} < found.keys()
    assert found.keys() == RECORDED.keys()
    assert found["conditions"]["gate"] == RECORDED["conditions"]["gate"]


def test_its_table_is_the_one_in_the_docs(gate):
    assert gate.table(RECORDED) in (ROOT / "docs" / "gate.md").read_text()


def test_false_promotions_in_thirty_nights_stay_below_alpha():
    assert [row for row in RECORDED["false_promotion_30_nights"] if row["rate"] > 0.05] == []


def test_items_that_share_an_identity_promote_nothing_false():
    clustered = {row["correlation"]: row for row in RECORDED["false_promotion_clustered"]}
    assert max(row["rate"] for row in clustered.values()) <= 0.05
    assert clustered[1.0]["counted_by_item"] > 0.1  # what a test that counts items does


def test_a_worse_candidate_is_as_good_as_never_promoted():
    assert max(row["rate"] for row in RECORDED["power"] if row["gain"] < 0) <= 0.005


def test_ten_points_are_found_within_two_nights_early_and_late():
    fresh = [row["rate"] for row in RECORDED["within_two_nights"] if row["evidence"] == "fresh"]
    assert len(fresh) == 2
    assert min(fresh) >= 0.9


def test_simulated_models_differ_on_thirty_percent_of_items(gate):
    history = gate.History(200_000, fresh=True, gain=0.1, seed=(1,))
    before, after = history._champion, history._answers(0.1)
    assert np.mean(before != after) == pytest.approx(0.3, abs=0.01)
    assert np.mean(after) - np.mean(before) == pytest.approx(0.1, abs=0.01)
