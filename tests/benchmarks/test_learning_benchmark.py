"""The benchmark beside TRL's trainer: what is claimed of the runs."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))


def line(run: str, seed: int, *solved: int) -> dict[str, object]:
    return {"run": run, "seed": seed, "solved": list(solved), "items": 100}


def test_the_best_rate_is_that_of_the_best_end_over_all_seeds():
    from learning import summary  # pyright: ignore[reportMissingImports]

    rivals = [
        line("trl 0.0001", 0, 40, 50),
        line("trl 0.0001", 1, 20, 30),
        line("trl 0.001", 0, 10, 45),
        line("trl 0.001", 1, 10, 45),
    ]
    found = summary([line("clawpipe", 0, 20, 80), line("clawpipe", 1, 20, 90), *rivals])
    assert found["best_rate"] == "trl 0.001"
    assert [one["success"] for one in found["curves"]["trl 0.001"]] == [0.1, 0.45]
    assert [one["seeds"] for one in found["curves"]["clawpipe"]] == [2, 2]


def test_a_lead_counts_where_the_intervals_are_apart():
    from learning import summary  # pyright: ignore[reportMissingImports]

    found = summary([line("clawpipe", 0, 50, 80), line("trl 0.001", 0, 45, 45)])
    assert found["not_ahead_after_round"] == [1]
