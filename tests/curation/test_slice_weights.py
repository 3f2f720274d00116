"""Weights of slices: the shares of the loss that they come to, against sums written by hand."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st


def sliced(tables: Any, **rows: int) -> None:
    """As many successes of two trained tokens as told of each slice, an item each."""
    for part, count in rows.items():
        for number in range(count):
            tables.item(f"{part}{number}", f"about {part}{number}?")
            tables.items[-1]["slice"] = part
            tables.rollout(f"{part}{number}", 0, 1.0)


def weights(tables: Any, result: Any) -> dict[str, float]:
    return {row["trajectory_id"]: row["weight"] for row in tables.rows(result)}


def test_a_slice_counts_twice_and_the_mean_stays_one(tables: Any) -> None:
    sliced(tables, calc=1, price=3)
    result = tables.curate("sft", slice_weights={"calc": 2.0})
    told = weights(tables, result)  # factors 2, 1, 1, 1 have the mean 5/4
    assert told == pytest.approx({"calc0-0": 1.6, "price0-0": 0.8, "price1-0": 0.8, "price2-0": 0.8})
    assert result.details["slices"] == {"calc": {"rows": 1, "share": 0.4}, "price": {"rows": 3, "share": 0.6}}


def test_balanced_slices_have_equal_shares(tables: Any) -> None:
    sliced(tables, calc=1, price=3)
    tables.rollout("unknown", 0, 1.0)  # of no task item
    result = tables.curate("sft", slice_weights="balanced")
    assert {name: part["share"] for name, part in result.details["slices"].items()} == pytest.approx(
        dict.fromkeys(["calc", "other", "price"], 1 / 3), abs=1e-6
    )


@pytest.mark.parametrize("method", ["grpo", "ppo", "kto", "dpo"])
def test_every_method_has_the_weights_in_its_rows(tables: Any, method: str) -> None:
    for item in "ab":
        tables.item(item, f"about {item}?")
        tables.items[-1]["slice"] = item
        for index in range(2):
            tables.rollout(item, index, float(index))
    told = {row["item_id"]: row["weight"] for row in tables.rows(tables.curate(method, slice_weights={"a": 3.0}))}
    assert told == pytest.approx({"a": 1.5, "b": 0.5})


def one_long(tables: Any) -> Any:
    """A row of six trained tokens of one slice, and a row of two of another."""
    sliced(tables, calc=1, price=1)
    long = {"token_ids": [1, 2, 3, 4, 5, 6, 7, 8, 9], "loss_mask": [False] * 3 + [True] * 6, "logprobs": [0.0] * 9}
    long["turns"] = [{"start": 3, "end": 9, "kind": "main", "finish_reason": "stop"}]
    tables.trajectories[0] |= long
    return tables


def test_shares_are_of_trained_tokens_where_the_loss_is(tables: Any) -> None:
    one_long(tables)
    told = weights(tables, tables.curate("sft", slice_weights="balanced"))
    assert told == pytest.approx({"calc0-0": 4 / 6, "price0-0": 2.0})  # 8 tokens: 4 for each slice
    rows = weights(tables, tables.curate("kto", slice_weights="balanced"))
    assert set(rows.values()) == {1.0}


@pytest.mark.parametrize("method", ["sft", "kto"])
def test_shares_are_of_rows_where_the_loss_is_a_mean_of_theirs(tables: Any, method: str) -> None:
    result = one_long(tables).curate(method, slice_weights={"calc": 3.0}, normalise="sequence")
    assert weights(tables, result) == pytest.approx({"calc0-0": 1.5, "price0-0": 0.5})
    assert result.details["slices"] == {"calc": {"rows": 1, "share": 0.75}, "price": {"rows": 1, "share": 0.25}}


@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(counts=st.lists(st.integers(1, 4), min_size=1, max_size=3), factors=st.lists(st.floats(0.1, 9), min_size=3, max_size=3))
def test_shares_are_as_the_factors_say(tables: Any, counts: list[int], factors: list[float]) -> None:
    for rows in (tables.trajectories, tables.scores, tables.items):
        rows.clear()
    sliced(tables, **{f"s{number}": count for number, count in enumerate(counts)})
    given = {f"s{number}": factor for number, factor in enumerate(factors[: len(counts)])}
    result = tables.curate("sft", slice_weights=given)
    total = sum(count * given[f"s{number}"] for number, count in enumerate(counts))
    expected = {f"s{number}": count * given[f"s{number}"] / total for number, count in enumerate(counts)}
    assert {name: part["share"] for name, part in result.details["slices"].items()} == pytest.approx(expected, abs=1e-6)
    assert sum(weights(tables, result).values()) == pytest.approx(sum(counts))
