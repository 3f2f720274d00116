"""The arithmetic of walls, and what the recorded figures say."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
RECORDED = json.loads((ROOT / "benchmarks" / "outgrow.json").read_text())


@pytest.fixture(scope="module")
def outgrow():
    sys.path.insert(0, str(ROOT / "benchmarks"))
    yield importlib.import_module("outgrow")
    sys.path.remove(str(ROOT / "benchmarks"))


def test_parts_of_a_night_are_divisions(outgrow):
    costs = {
        "sampled_tokens_per_second": 100.0,
        "trained_row_tokens_per_second": 50.0,
        "imported_mb_per_second": 10.0,
        "curated_rows_per_second": 1000,
        "run_seconds": 0.36,
    }
    found = outgrow.walls(costs, trajectories=36_000, machines=10, tokens=10, prompt=40, steps=10_000, megabytes=18_000)
    assert found == {
        "training, on one machine": 10.0,
        "chunks, through one Prefect server": 1.0,
        "imports, on one machine at a time": 0.5,
        "sampling, on all machines": 0.1,
        "curation, in one process": 0.01,
    }
    assert next(iter(found)) == "training, on one machine"


def test_the_recorded_nights_follow_from_the_recorded_costs(outgrow):
    assert outgrow.known_costs() == RECORDED["known"]
    for one in RECORDED["nights"]:
        assert outgrow.walls(RECORDED["known"] | RECORDED["measured"]["step"], **one["night"]) == one["hours"]
