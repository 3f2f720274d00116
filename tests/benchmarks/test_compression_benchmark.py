"""The stored table of compression says what its claim says; the claim can fail."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path

import pytest

PLACE = Path("benchmarks").resolve()
STORED = json.loads((PLACE / "compression.json").read_text())


@pytest.fixture(scope="module")
def benchmark():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(PLACE))
        yield importlib.import_module("compression")
    sys.modules.pop("compression", None)


def test_the_claim_holds_of_the_stored_rows_and_can_fail(benchmark):
    rows = STORED["rows"]
    assert {(one["seed"], one["arm"]) for one in rows} == {(seed, arm) for seed in (0, 1, 2) for arm in benchmark.ARMS}
    assert benchmark.holds(rows)
    worse = [one | {"replies": -9.0} if one["arm"] == "compress" and one["seed"] == 1 else one for one in rows]
    assert not benchmark.holds(worse)


def test_three_quarters_of_the_sessions_are_long(benchmark):
    lines = benchmark.sessions(0, "train", 40, lambda number: number % 4 > 0)
    assert sum("REPORT" in line["messages"][-1]["content"] for line in lines) == 30
    assert lines == benchmark.sessions(0, "train", 40, lambda number: number % 4 > 0)
