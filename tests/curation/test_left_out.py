"""Captured rows that curation leaves out are named with the reason."""

from __future__ import annotations

import json
import shutil

import pytest

from clawpipe.core.store.datasets import read_dataset
from clawpipe.data.curation import partitions


def left_out(tables, result):
    """Reason by trajectory."""
    if "quarantine" not in result.extras:
        return {}
    rows = read_dataset(tables.store, result.extra("quarantine")).to_pylist()
    assert [row["row_id"] for row in rows] == sorted(row["row_id"] for row in rows)
    assert {row["dataset"] for row in rows} == {"trajectories"}
    assert [json.loads(row["row"])["trajectory_id"] for row in rows] == [row["row_id"] for row in rows]
    return {row["row_id"]: row["reasons"] for row in rows}


@pytest.fixture
def talks(tables):
    """Of each source five rows: one asks what is held out, one repeats another, one is too long, and two are good."""
    tables.item("held", "about held?", split="heldout")
    for source in ("captured", "rollout"):
        names = ["held", "twice", "twice", "long", "good"]
        for index, item in enumerate(names):
            many = 40 if item == "long" else 2
            row = {
                "token_ids": [1, 2, 3, *range(10, 10 + many)],
                "loss_mask": [False] * 3 + [True] * many,
                "logprobs": [0.0] * 3 + [-0.5] * many,
                "turns": [{"start": 3, "end": 3 + many, "kind": "main", "finish_reason": "stop"}],
                "group_id": f"{source}/{item}",
                "trajectory_id": f"{source}-{index}",
                "source": source,
                "session_id": f"session-{index}",
            }
            tables.rollout(item, index, 1.0, text=f"{source} says {item}", **row)
    return tables


@pytest.mark.parametrize("method", ["sft", "ppo", "dpo", "kto"])
def test_captured_rows_are_named_with_the_reason(talks, method):
    result = talks.curate(method, max_tokens=20)
    named = left_out(talks, result)
    assert {row.partition("-")[0] for row in named} == {"captured"}
    assert named.keys() >= {"captured-0", "captured-3"}
    assert named["captured-0"] != named["captured-3"]
    assert set().union(*named.values()) <= result.filtered.keys()


def test_where_nothing_captured_is_left_out_nothing_is_published(tables):
    tables.rollout("a", 0, 1.0, source="captured")
    tables.rollout("b", 0, None)
    assert tables.curate("sft").extras == {}


def test_partitions_name_them_like_one_batch(talks, monkeypatch):
    monkeypatch.setattr(partitions, "_SMALL", 0)
    apart = talks.curate("sft", max_tokens=20)
    assert talks.agrees_with_one_batch(apart, lambda: talks.curate("sft", max_tokens=20))
    for folder in (talks.store.root / "quarantine").iterdir():
        shutil.rmtree(folder)
    assert left_out(talks, talks.curate("sft", max_tokens=20)) == left_out(talks, apart) != {}
