"""A whole night in which a program plays: rollouts and evaluations, to a verdict, also after the night was killed."""

from __future__ import annotations

import json
import signal
import sys

import pytest

from clawpipe.core.config import load_config
from clawpipe.core.services.stack import project_directory
from clawpipe.core.store.artifacts import Store
from clawpipe.core.store.datasets import dataset_ref, read_dataset

pytestmark = [pytest.mark.slow, pytest.mark.trains]
EXAMPLE = project_directory() / "examples" / "agent"
OPTIONS = load_config(EXAMPLE / "night.yaml").environment.options | {  # type: ignore[union-attr]
    "command": [sys.executable, str(EXAMPLE / "loop.py")],
    "tasks": str(EXAMPLE / "tasks.jsonl"),
}
SMALL = (
    f"environment={json.dumps({'name': 'agent', 'options': OPTIONS, 'train_items': 8, 'heldout_items': 8, 'benchmark_items': 0})}",
    *("rounds=1", "rollouts.items=8", "rollouts.group_size=4", "rollouts.chunks=2", "rollouts.shard_rollouts=16"),
    *("train.optimizer_steps=2", "rollouts.max_turns=4"),
)


@pytest.mark.long
def test_a_programs_night_ends_alike_after_a_kill(new_clawpipe):
    whole = (clawpipe := new_clawpipe("agent")).night(*SMALL)
    assert whole["verdict"] in ("PROMOTE", "HOLD", "REJECT")
    [made] = [step for step in whole["steps"] if step["name"] == "round-1/generate_rollouts"]
    store = Store(clawpipe.home.store)
    rows = read_dataset(store, dataset_ref(store, "trajectories", made["digest"])).to_pylist()
    assert len(rows) >= 32
    assert {row["ended"] for row in rows} <= {"done", "length", "max_turns"}
    assert {row["tokens"] for row in rows} == {"recorded"}

    killed = new_clawpipe("agent-killed")
    end = killed.run(*SMALL, kill_at="rollouts.before_rename#2")
    assert end.code == -signal.SIGKILL
    killed.await_quiet()
    again = killed.night(*SMALL)
    digests = {step["name"]: step["digest"] for step in whole["steps"]}
    assert {step["name"]: step["digest"] for step in again["steps"]} == digests
    assert again["policy_version"] == whole["policy_version"]
