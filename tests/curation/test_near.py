"""What is done about what is nearly the same, once that is known."""

import pyarrow as pa
import pytest

from clawpipe.core.config.night import Curation
from clawpipe.core.store.datasets import publish_dataset
from clawpipe.data.curation.joined_tables import LAYOUTS
from clawpipe.data.curation.runner import curate


def curated(tables, method="sft", heldout=(), repeats=()):
    """`heldout`: (trajectory, how). `repeats`: (trajectory, earlier one, of the same item, within the batch)."""
    near = {
        "near_heldout": [{"trajectory_id": name, "item_id": "h", "how": how} for name, how in heldout],
        "near_duplicate": [
            {"trajectory_id": name, "repeats": earlier, "same_item": same, "within": within, "similarity": 0.9}
            for name, earlier, same, within in repeats
        ],
    }
    refs = [publish_dataset(tables.store, name, [pa.Table.from_pylist(rows, LAYOUTS[name])]) for name, rows in near.items()]
    data = {name: tables.publish(name, rows) for name, rows in (("trajectories", tables.trajectories), ("scores", tables.scores))}
    items = tables.publish("task_items", tables.items)
    return curate(tables.store, [data["trajectories"]], [data["scores"]], items, Curation(), method, near=refs, threads=1)


def some(tables, *names, reward=1.0):
    for name in names:
        tables.item(name, f"question {name}?")
        tables.rollout(name, 0, reward, trajectory_id=name)
        tables.rollout(name, 1, 0.0, trajectory_id=f"{name}-failed")


def test_rows_near_to_held_out_items_have_their_own_reason(tables):
    some(tables, *"abc")
    result = curated(tables, "grpo", heldout=[("a", "n-gram"), ("b", "near-duplicate"), ("z", "n-gram")])
    assert {reason: result.filtered[reason] for reason in result.filtered if "held-out" in reason} == {
        "held-out n-gram": 1,
        "held-out near-duplicate": 1,
    }
    assert {"a", "b"}.isdisjoint(tables.kept(result))
    assert {"c", "c-failed"} <= set(tables.kept(result))
    assert result.rows_in == result.rows_out + sum(result.filtered.values())


@pytest.mark.parametrize(("method", "left"), [("sft", 2), ("grpo", 1), ("ppo", 1), ("dpo", 1)])
def test_within_an_item_only_imitation_drops_near_duplicates(tables, method, left):
    some(tables, *"abc")
    result = curated(tables, method, repeats=[("b", "a", False, True), ("c", "a", True, True)])
    assert result.filtered["near-duplicate"] == left


def test_what_repeats_a_row_that_is_not_learnt_from_stays(tables):
    some(tables, "a", reward=0.5)
    some(tables, "b")
    assert tables.kept(curated(tables, repeats=[("b", "a", False, True)])) == ["b"]


def test_what_repeats_a_row_of_an_earlier_night_leaves(tables):
    some(tables, *"ab")
    assert tables.kept(curated(tables, repeats=[("b", "long-ago", False, False)])) == ["a"]


def test_a_chain_of_repetitions_leaves_its_first_row(tables):
    some(tables, *"abc")
    result = curated(tables, repeats=[("b", "a", False, True), ("c", "b", False, True), ("c", "a", False, True)])
    assert tables.kept(result) == ["a"]
    assert result.filtered["near-duplicate"] == 2
