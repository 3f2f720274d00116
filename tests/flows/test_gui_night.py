"""A night on the pages of an app, from rollouts in a real browser to its verdict, with its steps called as plain functions."""

from __future__ import annotations

import json
import shutil

import pytest

from clawpipe.core.config import load_config
from clawpipe.core.services.stack import project_directory
from clawpipe.core.store.datasets import read_dataset
from clawpipe.core.store.home import Home
from clawpipe.core.store.open import open_store
from tests.flows.here import results_here

pytestmark = [
    pytest.mark.long,
    pytest.mark.trains,
    pytest.mark.usefixtures("quick_children"),
    pytest.mark.skipif(shutil.which("chromium") is None, reason="no chromium: apt-get install chromium"),
]
SMALL = (
    *("rounds=1", "rollouts.items=3", "rollouts.group_size=2", "rollouts.chunks=1", "train.optimizer_steps=1"),
    *("environment.train_items=3", "environment.heldout_items=3", "gate.min_items=1", "environment.name=gui"),
)


def test_a_night_on_pages_reaches_a_verdict(tmp_path, monkeypatch):
    """The model, of random weights, calls nothing: the reward is the page's own, a number by lot."""
    monkeypatch.setenv("CLAWPIPE_HOME", str(tmp_path / "home"))
    (tmp_path / "app").mkdir()
    (tmp_path / "app" / "index.html").write_text("<h1>Shop</h1><button>Save</button>")
    tasks = [{"task": f"Save {number}.", "check": "Math.random()"} for number in range(20)]
    (tmp_path / "tasks.jsonl").write_text("\n".join(map(json.dumps, tasks)))
    options = {"tasks": str(tmp_path / "tasks.jsonl"), "site": str(tmp_path / "app"), "seconds": 60.0}
    home = Home.from_env()
    settings = (*SMALL, f"environment.options={json.dumps(options)}")
    config = load_config(project_directory() / "configs" / "tiny.yaml", settings)
    results = results_here(home, config)

    assert results["gate"].details["decision"] in ("PROMOTE", "HOLD", "REJECT")
    verdicts = [
        json.loads(row["verdict"])
        for row in read_dataset(open_store(home), results["round-1/generate_rollouts"].dataset).to_pylist()
    ]
    assert len(verdicts) == 6
    for verdict in verdicts:
        (digest,) = verdict["screenshots"]
        assert (home.screenshots / digest[:2] / f"{digest}.png").is_file()
