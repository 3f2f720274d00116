"""A night of kto, from rollouts to its verdict, with its steps called as plain functions: no Prefect server, two processes."""

from __future__ import annotations

import pytest

from clawpipe.core.config import load_config
from clawpipe.core.services.stack import project_directory
from clawpipe.core.store.datasets import read_dataset
from clawpipe.core.store.home import Home
from clawpipe.core.store.open import open_store
from tests.flows.here import results_here

pytestmark = [pytest.mark.slow, pytest.mark.trains, pytest.mark.usefixtures("quick_children")]
SMALL = (
    *("train.method=kto", "rounds=1", "rollouts.items=6", "rollouts.group_size=2", "rollouts.chunks=1", "train.optimizer_steps=2"),
    *("train.pack_tokens=64", "environment.heldout_items=8", "gate.min_items=1", "environment.options={threshold: 0.3}"),
)


def test_a_kto_night_learns_from_labels_and_reaches_a_verdict(tmp_path, monkeypatch):
    monkeypatch.setenv("CLAWPIPE_HOME", str(tmp_path))
    home = Home.from_env()
    config = load_config(project_directory() / "configs" / "tiny.yaml", SMALL)
    results = results_here(home, config)

    curated, trained = results["round-1/curate"], results["round-1/train"]
    rows = read_dataset(open_store(home), curated.dataset).to_pylist()
    assert {advantage for row in rows for advantage in row["advantages"]} <= {-1.0, 0.0, 1.0}
    assert results["round-1/annotate"].rows_out == len(rows) == trained.rows_out
    first, last = trained.details["updates"]
    assert first["kl"] == pytest.approx(0, abs=1e-3)  # the policy is its reference
    assert first["loss"] == pytest.approx(0.5, abs=1e-3)  # every row is worth half of the most, whatever its label
    assert last["step"] == 2
    assert trained.details["moved"] > 0
    assert results["gate"].details["decision"] in ("PROMOTE", "HOLD", "REJECT")
