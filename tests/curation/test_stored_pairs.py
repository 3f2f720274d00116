"""Stored preference pairs beside those of the night."""

import pyarrow as pa
import pytest

from clawpipe.config.night import EnvironmentConfig
from clawpipe.contracts.schema import schema_of
from clawpipe.curation.stored_pairs import join_pairs
from clawpipe.errors import DataError
from clawpipe.evaluation.draw import draw_heldout, make_benchmark, make_task_items
from clawpipe.store.artifacts import Store
from clawpipe.store.datasets import publish_dataset, read_dataset


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "store")


@pytest.fixture
def items(store):
    config = EnvironmentConfig(name="letters", train_items=2, heldout_items=2, benchmark_items=0)
    return draw_heldout(store, make_task_items(store, config).dataset, make_benchmark(store, config).dataset, config, {}).extras[
        "all"
    ]


def message(role, content):
    return {"role": role, "content": content, "tool_calls": [], "tool_call_id": None, "name": None}


def pair(name, item="i", question="bado", **changes):
    text = {"prompt": [message("user", question)], "chosen": [message("assistant", "a")], "rejected": [message("assistant", "b")]}
    streams = {f"{side}_{stream}": [] for side in ("chosen", "rejected") for stream in ("token_ids", "loss_mask")}
    facts = {"pair_id": name, "item_id": item, "group_id": item, "strategy": "imported", "chosen_id": f"{name}c"}
    facts |= {"rejected_id": f"{name}r", "weight": 1.0, "temperature": 0.0, "tokens": "none", "prompt_tokens": 0}
    return facts | text | streams | changes


@pytest.fixture
def stored(store):
    return lambda *rows, version="2": publish_dataset(
        store,
        "preference_pairs",
        [pa.Table.from_pylist(list(rows), schema_of("preference_pairs", version))],
        schema_version=version,
    )


def names(store, result):
    return [row["pair_id"] for row in read_dataset(store, result.dataset).to_pylist()]


def test_stored_pairs_are_joined_in_the_given_order(store, items, stored):
    made, first, second = stored(pair("m2"), pair("m1")), stored(pair("a")), stored(pair("c"), pair("b"))
    result = join_pairs(store, [made], [first, second], items)
    assert names(store, result) == ["m2", "m1", "a", "c", "b"]
    assert (result.rows_in, result.rows_out, result.filtered, result.extras) == (5, 5, {}, {})
    assert set(result.dataset.parents) == {made.digest, first.digest, second.digest, items.digest}
    assert join_pairs(store, [], [first], items).rows_out == 1


def test_held_out_and_repeated_pairs_are_filtered(store, items, stored):
    heldout = next(row for row in read_dataset(store, items).to_pylist() if row["split"] == "heldout")
    question = heldout["messages"][-1]["content"]
    later = [message("assistant", "a"), message("user", f"  {question.upper()} "), message("assistant", "c")]
    rows = [pair("item", item=heldout["item_id"]), pair("asked", question=question), pair("later", rejected=later), pair("good")]
    result = join_pairs(store, [stored(pair("good"))], [stored(*rows)], items)
    assert names(store, result) == ["good"]
    assert result.filtered == {"held-out item": 1, "held-out question": 2, "pair given twice": 1}
    assert result.rows_in == result.rows_out + sum(result.filtered.values())


def test_rows_that_break_the_contract_go_to_quarantine(store, items, stored):
    result = join_pairs(store, [], [stored(pair("fine")), stored(pair("bad", tokens="maybe"), pair("well"))], items)
    assert names(store, result) == ["fine", "well"]
    assert sum(result.filtered.values()) == 1
    assert list(result.extras) == ["quarantine-2"]
    assert result.rows_in == result.rows_out + 1


def test_another_layout_is_refused(store, items):
    other = publish_dataset(store, "preference_pairs", [pa.table({"pair_id": ["x"]})], schema_version="2")
    with pytest.raises(DataError, match="is missing"):
        join_pairs(store, [], [other], items)


def test_pairs_of_the_older_version_join_those_of_the_newer_one(store, items, stored):
    older, newer = stored(pair("a"), version="1"), stored(pair("b", session_id="s1"))
    rows = read_dataset(store, join_pairs(store, [], [older, newer], items).dataset).to_pylist()
    assert [(row["pair_id"], row["session_id"]) for row in rows] == [("a", None), ("b", "s1")]
