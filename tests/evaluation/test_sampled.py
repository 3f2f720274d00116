"""What a night's rollouts say of the policies, and the steps that read it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean, variance
from typing import Any

import pyarrow as pa
import pytest

from clawpipe.core.contracts.schema import schema_of
from clawpipe.core.store.artifacts import Store
from clawpipe.core.store.datasets import publish_dataset
from clawpipe.core.store.home import Home
from clawpipe.core.store.open import open_store
from clawpipe.core.store.refs import DatasetRef, ModelRef
from clawpipe.learn.evaluation.rounds import Tried
from clawpipe.learn.evaluation.rounds import choose_round as best_round
from clawpipe.learn.evaluation.sampled import lengths, read_sampled
from clawpipe.model.policy.version import base_ref
from tasks.choice import choose_round, compare_rounds

BASE = base_ref("random", "b" * 64, "pythonic", "float32")
ITEMS = {"a0": ("sums", "a"), "a1": ("sums", "a"), "b0": ("words", "b"), "c0": ("words", "")}  # slice and identity


def policy(name: str) -> ModelRef:
    return BASE.model_copy(update={"digest": name, "policy_version": name, "adapter": True})


def published(store: Store, name: str, rows: Sequence[dict[str, Any]]) -> DatasetRef:
    schema = schema_of(name)
    table = pa.Table.from_pylist([{field: row.get(field) for field in schema.names} for row in rows], schema=schema)
    return publish_dataset(store, name, [table])


def items(store: Store) -> DatasetRef:
    rows = [{"item_id": name, "slice": slice_, "identity": identity} for name, (slice_, identity) in ITEMS.items()]
    return published(store, "task_items", rows)


def rollouts(store: Store, version: str, outcomes: dict[str, list[bool | None]], tokens: int = 3) -> tuple[DatasetRef, DatasetRef]:
    """Rollouts of a policy, item by item, and the verifier's scores; None for one without a verdict."""
    names = [(item, f"{version}-{item}-{place}", won) for item, wins in outcomes.items() for place, won in enumerate(wins)]
    mask = [False] + [True] * tokens
    silent: dict[str, Any] = {"policy_version": version, "loss_mask": mask, "source": "rollout", "messages": [], "turns": []}
    tried = [silent | {"trajectory_id": name, "item_id": item} for item, name, _ in names]
    verdict = {"scorer": "verifier", "origin": "verifier", "turn": None, "evidence": "{}"}
    scored = [verdict | {"trajectory_id": name, "value": float(bool(won)), "success": won} for _, name, won in names]
    judged = [row | {"scorer": "prm", "origin": "judge", "success": True} for row in scored]  # who judges does not verify
    of_turns = [row | {"turn": 0, "success": True} for row in scored]
    return published(store, "trajectories", tried), published(store, "scores", [*scored, *judged, *of_turns])


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    monkeypatch.setenv("CLAWPIPE_HOME", str(tmp_path / "home"))
    return open_store(Home.from_env())


def test_items_count_by_identity_and_slice(store: Store):
    first = rollouts(store, "one", {"a0": [True, False], "a1": [True], "b0": [None, False], "c0": [True]})
    other = rollouts(store, "somebody's", {"a0": [True]})
    sampled = read_sampled(store, {0: BASE, 1: policy("one")}, [first[0], other[0]], [first[1], other[1]], items(store))
    assert (sampled.rollouts, sampled.verified) == (6, 5)
    assert [measured.round for measured in sampled.policies] == [0, 1]
    assert sampled.policies[0].items == {}
    assert sampled.policies[1].items == {("a", "sums"): Tried(2, 3), ("b", "words"): Tried(0, 1), ("c0", "words"): Tried(1, 1)}


def test_slices_of_one_identity_are_kept_apart(store: Store):
    asked = [
        {"item_id": f"{slice_}{n}", "slice": slice_, "identity": f"shoe-{n}"} for n in range(40) for slice_ in ("price", "stock")
    ]
    start, after = (
        rollouts(store, version, {row["item_id"]: [(row["slice"] == "price") == knows_price] * 4 for row in asked})
        for version, knows_price in ((BASE.policy_version, False), ("one", True))
    )
    known = published(store, "task_items", asked)
    before, trained = read_sampled(store, {0: BASE, 1: policy("one")}, [start[0], after[0]], [start[1], after[1]], known).policies
    rates = best_round(before, [trained], 0.05).rounds[1].slices
    assert {name: (rate.items, rate.change, rate.lost) for name, rate in rates.items()} == {
        "price": (40, 1.0, False),
        "stock": (40, -1.0, True),
    }


def in_parts(store: Store, **tokens: Sequence[int]) -> tuple[DatasetRef, DatasetRef]:
    """An episode of each item, which left a row for each number of sampled tokens. Those of `a` succeed."""
    rows = [(item, part, n, len(each)) for item, each in tokens.items() for part, n in enumerate(each)]
    tried = [
        {"trajectory_id": f"{item}-{part}", "item_id": item, "policy_version": "one", "loss_mask": [False] + [True] * n}
        | {"source": "rollout", "messages": [], "turns": []}
        | {"extra": json.dumps({"episode": f"{item}-0"} | ({"part": part} if part else {})) if of > 1 else None}
        for item, part, n, of in rows
    ]
    verdict = {"scorer": "verifier", "origin": "verifier", "turn": None, "evidence": "{}", "value": 0.0}
    scored = [verdict | {"trajectory_id": f"{item}-{part}", "success": item.startswith("a")} for item, part, *_ in rows]
    return published(store, "trajectories", tried), published(store, "scores", scored)


def test_an_episode_of_several_rows_is_one_rollout(store: Store):
    made = in_parts(store, a0=[5], b0=[4, 2, 1])
    sampled = read_sampled(store, {1: policy("one")}, [made[0]], [made[1]], items(store))
    assert (sampled.rollouts, sampled.verified) == (2, 2)
    assert sampled.policies[0].items == {("a", "sums"): Tried(1, 1), ("b", "words"): Tried(0, 1)}


def test_the_length_of_an_episode_is_that_of_all_its_rows(store: Store):
    made, _ = in_parts(store, a0=[5], b0=[4, 2, 1])
    assert lengths(store, made) == (2, 6.0, 2.0)


def test_rounds_that_changed_nothing_share_what_was_measured(store: Store):
    made = rollouts(store, "one", {"a0": [True]})
    sampled = read_sampled(store, {0: BASE, 1: policy("one"), 2: policy("one")}, [made[0]], [made[1]], items(store))
    assert [len(measured.items) for measured in sampled.policies] == [0, 1, 0]


def test_lengths_are_those_of_sampled_tokens(store: Store):
    made, _ = rollouts(store, "one", {"a0": [True, True]}, tokens=5)
    assert lengths(store, made) == (2, 5.0, 0.0)
    silent, _ = rollouts(store, "one", {"a0": [True, True]}, tokens=0)
    assert lengths(store, silent) is None


def test_choose_round_returns_the_round_and_the_table(store: Store):
    start, first, last = (
        rollouts(store, version, {"a0": [won] * 4, "b0": [True] * 2})
        for version, won in ((BASE.policy_version, False), ("one", True), ("two", False))
    )
    result = choose_round.function(
        start=BASE,
        trained={"round-1": policy("one"), "round-2": policy("two")},
        trajectories=[start[0], first[0], last[0]],
        scores=[start[1], first[1], last[1]],
        items=items(store),
        alpha=0.05,
    )
    assert result.model == policy("one")
    assert (result.rows_in, result.rows_out, result.filtered) == (18, 18, {})
    assert (result.details["round"], result.details["of"], len(result.details["rounds"])) == (1, 2, 3)
    assert "warnings" not in result.details


def test_compare_rounds_sees_longer_rollouts(store: Store):
    before = rollouts(store, "one", {"a0": [True] * 8, "b0": [None]})
    after = rollouts(store, "two", {"a0": [True] * 8}, tokens=9)
    result = compare_rounds.function(
        policies={"round-1": policy("one"), "round-2": policy("two")},
        trajectories=[before[0], after[0]],
        scores=[before[1], after[1]],
        items=items(store),
        method="grpo",
    )
    assert (result.rows_in, result.rows_out, result.filtered) == (17, 16, {"not verified": 1})
    [sign] = result.details["signs"]
    assert "Rollouts became longer: 9.0 sampled tokens on average, 3.0" in sign


def test_lengths_are_what_statistics_says_of_them(store: Store):
    masks = [[False, *([True] * (n * n % 7)), False][: n % 9] for n in range(60)]
    tried = [
        {"trajectory_id": str(n), "loss_mask": mask, "source": "rollout", "messages": [], "turns": []}
        for n, mask in enumerate(masks)
    ]
    sampled = [sum(mask) for mask in masks if mask]
    found = lengths(store, published(store, "trajectories", tried))
    assert found == (len(sampled), fmean(sampled), float(variance(sampled)))
