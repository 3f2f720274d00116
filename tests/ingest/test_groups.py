"""Groups of attempts that were sampled and scored together stay together, and apart from all others."""

import pyarrow as pa
import pytest

from clawpipe.core.config.curation import Curation
from clawpipe.core.contracts.schema import schema_of
from clawpipe.core.store.datasets import publish_dataset, read_dataset
from clawpipe.data.curation.runner import curate


def test_groups_that_begin_alike_are_not_one(desk, make):
    step, later = make.group(1.0, 0.0), make.group(0.5, 0.25)
    mixed = make.group(1.0, 0.0, 0.5)
    mixed["messages"][1][0]["content"] = "another question"
    desk.write("run.jsonl", make.lines(step, later, {"batch": [mixed]}))
    desk.write("copy.jsonl", make.lines(step))
    done = desk.ingest(policy_version="p7")
    rows = desk.rows(done)
    groups = [row["group_id"] for row in rows]
    assert [groups.count(group) for group in dict.fromkeys(groups)] == [2, 2, 3]
    assert all(row["group_id"] == f"{row['item_id']}/p7" for row in rows)
    assert [row["rollout_index"] for row in rows] == [0, 1, 0, 1, 0, 1, 2]
    assert done.counts["repeated"] == 2


def test_a_sequence_that_was_overridden_is_not_learned_from(desk, make):
    overrides = [{}, {"set_advantage_to_zero": True}, {}]
    desk.write("run.jsonl", make.lines(make.group(1.0, -9.0, 0.0, overrides=overrides)))
    done = desk.ingest(policy_version="p7", temperature=1.0)
    assert [[turn["kind"] for turn in row["turns"]] for row in desk.rows(done)] == [["main"], ["side"], ["main"]]
    items = publish_dataset(desk.store, "task_items", [pa.Table.from_pylist([], schema_of("task_items"))])
    trained = curate(desk.store, [done.datasets["trajectories"]], [done.datasets["scores"]], items, Curation(), "grpo")
    assert trained.filtered == {"nothing to train on": 1}
    samples = read_dataset(desk.store, trained.output).to_pylist()
    assert len(samples) == 2
    assert sum(sum(row["advantages"]) for row in samples) == pytest.approx(0)  # its score is in no mean
