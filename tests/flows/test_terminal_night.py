"""A night whose tasks are done in a shell: what no rollout solves is demonstrated in a sandbox, and imitated."""

from __future__ import annotations

import json
import shutil

import pytest

from clawpipe.core.store.artifacts import Store
from clawpipe.core.store.datasets import dataset_ref, read_dataset

pytestmark = [
    pytest.mark.slow,
    pytest.mark.trains,
    pytest.mark.skipif(not shutil.which("bwrap"), reason="no bubblewrap: apt-get install bubblewrap"),
]
SMALL = (
    *("environment.name=terminal", "environment.options.families=[copy,delete]", "environment.train_items=4"),
    *("environment.heldout_items=4", "rounds=1", "rollouts.items=4", "rollouts.group_size=2", "rollouts.chunks=1"),
    *("curation.demonstrations.share=1", "train.optimizer_steps=1"),
)


def test_a_night_in_a_shell_comes_to_a_verdict(new_clawpipe):
    clawpipe = new_clawpipe("terminal")
    status = clawpipe.night(*SMALL)
    assert status["verdict"] in ("HOLD", "PROMOTE")
    made = {step["name"]: step for step in status["steps"]}
    assert (made["round-1/demonstrate"]["rows_out"], made["round-1/train"]["rows_in"]) == (4, 4)
    store, ref = Store(clawpipe.home.store), made["round-1/demonstrate"]["artifacts"]["output"]
    for row in read_dataset(store, dataset_ref(store, ref["name"], ref["digest"])).to_pylist():
        assert row["ended"] == "done"
        assert json.loads(row["verdict"])["steps"] == 1
        assert [message["content"] for message in row["messages"][1:]] == ["", "[exit code 0]", "Done."]
