"""A night in repositories: rollouts and demonstrations are graded in sandboxes, and it comes to a verdict."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.core.store.artifacts import Store
from clawpipe.core.store.datasets import dataset_ref, read_dataset
from tests.environments.swe.conftest import needs_bubblewrap, row, write_repository, write_rows  # noqa: F401  (a fixture)

pytestmark = [pytest.mark.slow, pytest.mark.long]


def tasks(folder: Path) -> Path:
    """Write 20 tasks: one fault, called by twenty names."""
    commit = write_repository(folder / "repositories" / "ann__tally")
    rows = [row(commit, instance_id=f"tally-{n}", identity=f"{n}", problem_statement=f"{n}: it is too small.") for n in range(20)]
    return write_rows(folder / "tasks.jsonl", *rows)


def test_a_night_in_repositories_comes_to_a_verdict(new_clawpipe, tmp_path: Path, needs_bubblewrap: None):  # noqa: F811
    clawpipe = new_clawpipe("swe")
    place = f"environment={{name: swe, options: {{tasks: '{tasks(tmp_path)}', share: 0.4, max_steps: 2}}}}"
    counts = ("environment.train_items=6", "environment.heldout_items=4", "environment.benchmark_items=0", "gate.min_items=1")
    little = ("rollouts.items=4", "rollouts.group_size=2", "rollouts.chunks=2", "rounds=1", "train.optimizer_steps=1")
    status = clawpipe.night(place, *counts, *little, "curation.demonstrations={share: 1.0, weight: 1.0}")
    assert status["verdict"] == "HOLD"
    assert status["heldout"]["base"]["success"] == 0.0
    steps = {step["name"]: step["digest"] for step in status["steps"]}
    store = Store(clawpipe.home.store)

    def verdicts(step: str) -> list[JsonObject]:
        rows = read_dataset(store, dataset_ref(store, "trajectories", steps[step])).to_pylist()
        return [json.loads(row["verdict"]) for row in rows]

    assert [verdict["refused"] for verdict in verdicts("round-1/validate")] == ["nothing was changed that counts"] * 8
    for verdict in verdicts("round-1/demonstrate"):
        assert set(verdict["fail_to_pass"].values()) == {"passed"}
        assert "+        if number > best:" in verdict["patch"]
