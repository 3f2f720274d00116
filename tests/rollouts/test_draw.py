"""Items drawn by their pass rates, against draws that are written by hand."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clawpipe.core.config.generation import Difficulty
from clawpipe.core.contracts.schema import conformed, schema_of
from clawpipe.core.store.artifacts import Store
from clawpipe.core.store.datasets import publish_dataset
from clawpipe.core.store.refs import DatasetRef
from clawpipe.play.rollouts.draw import draw_items, drawn, kind_of, pass_rates
from clawpipe.play.rollouts.levels import Won


def items(**slices: int) -> list[dict[str, Any]]:
    names = [(f"{part}{number}", part) for part, count in slices.items() for number in range(count)]
    return [{"item_id": name, "slice": part, "ordinal": place} for place, (name, part) in enumerate(names)]


def names(rows: list[dict[str, Any]]) -> list[str]:
    return sorted(row["item_id"] for row in rows)


def test_the_newest_round_that_tried_an_item_says_its_rate() -> None:
    newest, before = {"a": Won(1, 2)}, {"a": Won(0, 1), "b": Won(3, 4)}
    assert pass_rates([newest, before]) == {"a": 0.5, "b": 0.75}


def published(store: Store, name: str, rows: list[dict[str, Any]]) -> DatasetRef:
    return publish_dataset(store, name, [conformed(pa.Table.from_pylist(rows), schema_of(name))])


def test_an_episode_of_several_rows_counts_once(tmp_path: Path) -> None:
    """A success of one row, and a failure of nine: by rows the item would be hard."""
    store = Store(tmp_path)
    parts = [json.dumps({"episode": "lost-0"} | ({"part": part} if part else {})) for part in range(9)]
    tried = [{"trajectory_id": "won", "item_id": "a0", "extra": None}]
    tried += [{"trajectory_id": f"lost-{part}", "item_id": "a0", "extra": extra} for part, extra in enumerate(parts)]
    scored = [{"trajectory_id": row["trajectory_id"], "origin": "verifier", "success": row == tried[0]} for row in tried]
    past = published(store, "trajectories", tried), published(store, "scores", scored)
    known = published(store, "task_items", [row | {"split": "train"} for row in items(a=1)])
    assert draw_items(store, known, [past], Difficulty(), 1, 0).details["drawn"] == {"middling": 1}


@pytest.mark.parametrize(("rate", "kind"), [(None, "unseen"), (0.19, "hard"), (0.2, "middling"), (0.8, "middling"), (0.81, "easy")])
def test_both_ends_of_the_band_are_middling(rate: float | None, kind: str) -> None:
    assert kind_of(rate, Difficulty()) == kind


def test_middling_items_come_before_unseen_and_those_by_distance() -> None:
    rates = {"a0": 0.0, "a1": 0.5, "a2": 1.0, "a3": 0.8, "a4": 0.9}
    rows = items(a=6)  # a5 is unseen
    orders = [names(drawn(rows, rates, Difficulty(unseen=0.0), count, 0)) for count in (2, 3, 4, 5)]
    assert orders == [["a1", "a3"], ["a1", "a3", "a5"], ["a1", "a3", "a4", "a5"], orders[-1]]
    assert len(set(orders[-1]) - {"a1", "a3", "a4", "a5"}) == 1  # hard and easy are equally far from the band


def test_unseen_items_have_their_share() -> None:
    rates = {f"a{number}": 0.5 for number in range(8)}
    told = drawn(items(a=16), rates, Difficulty(unseen=0.25), 8, 3)
    assert sum(row["item_id"] not in rates for row in told) == 2


def test_slices_keep_their_shares_however_hard_they_are() -> None:
    rates = {f"b{number}": 0.5 for number in range(8)} | {f"a{number}": 0.0 for number in range(8)}
    told = drawn(items(a=8, b=8), rates, Difficulty(), 8, 0)
    assert Counter(row["slice"] for row in told) == {"a": 4, "b": 4}


@given(
    sizes=st.dictionaries(st.sampled_from("abcd"), st.integers(1, 9), min_size=1),
    count=st.integers(1, 20),
    seed=st.integers(0, 9),
    data=st.data(),
)
def test_draws_are_whole_equal_and_without_needless_repeats(sizes: dict[str, int], count: int, seed: int, data: Any) -> None:
    rows = items(**sizes)
    rates = data.draw(st.dictionaries(st.sampled_from([row["item_id"] for row in rows]), st.floats(0, 1)))
    told = drawn(rows, rates, Difficulty(), count, seed)
    assert told == drawn(list(reversed(rows)), dict(reversed(rates.items())), Difficulty(), count, seed)
    assert len(told) == count
    by_slice = Counter(row["slice"] for row in told)
    assert all(abs(by_slice[part] - count * size / len(rows)) < 1 for part, size in sizes.items())
    if count <= len(rows):
        assert len({row["item_id"] for row in told}) == count
