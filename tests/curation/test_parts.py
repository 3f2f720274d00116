"""Parts of a reward, each normalised in its group: against numbers by hand, and against numpy."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from clawpipe.core.config.curation import Curation


def scored(tables: Any, item: str, *rewards: dict[str, float]) -> None:
    for index, parts in enumerate(rewards):
        tables.rollout(item, index, None)
        tables.score(f"{item}-{index}", sum(parts.values()), evidence=json.dumps({"parts": parts}))


def advantages(tables: Any, **config: Any) -> dict[str, float]:
    return {row["trajectory_id"]: row["advantages"][-1] for row in tables.rows(tables.curate("grpo", advantage="parts", **config))}


def test_equal_sums_of_other_parts_still_teach(tables: Any) -> None:
    scored(tables, "a", {"right": 1.0, "short": 0.0}, {"right": 0.0, "short": 1.0})
    told = advantages(tables, part_weights={"short": 0.5})
    one = 0.5 / 0.5001  # a distance of 0.5 from the mean, over the deviation + 1e-4
    assert told == pytest.approx({"a-0": one - 0.5 * one, "a-1": -one + 0.5 * one}, abs=1e-6)
    assert tables.curate("grpo").filtered == {"zero-variance group": 2}


def test_a_large_part_does_not_drown_a_small_one(tables: Any) -> None:
    scored(tables, "a", {"right": 100.0, "short": 0.1}, {"right": 0.0, "short": 0.1}, {"right": 0.0, "short": 0.0})
    right, short = np.array([100.0, 0, 0]), np.array([0.1, 0.1, 0])
    expected = sum((part - part.mean()) / (part.std() + 1e-4) for part in (right, short))
    assert list(advantages(tables).values()) == pytest.approx(expected.tolist(), abs=1e-5)


def test_a_reward_without_parts_is_its_only_part(tables: Any) -> None:
    for index, reward in enumerate((0.0, 0.0, 1.0)):
        tables.rollout("a", index, reward)
    by_group = {row["trajectory_id"]: row["advantages"][-1] for row in tables.rows(tables.curate("grpo"))}
    assert advantages(tables) == pytest.approx(by_group)


def test_evidence_that_holds_no_parts_is_none(tables: Any) -> None:
    for index, reward in enumerate(("much", [1], {"right": "yes"}, {})):
        tables.rollout("a", index, None)
        tables.score(f"a-{index}", float(index), evidence=json.dumps({"parts": reward, "reward": reward}))
    values = np.arange(4.0)
    expected = (values - values.mean()) / (values.std() + 1e-4)
    assert list(advantages(tables).values()) == pytest.approx(expected.tolist(), abs=1e-6)


def test_other_scorers_are_parts_beside_the_verifiers_own(tables: Any) -> None:
    for index, (own, others) in enumerate([({"x": 1.0}, {"short": 0.0}), ({}, {"short": 4.0})]):
        tables.rollout("a", index, None)
        evidence = {"parts": own or {"x": 0.0}, "reward": {"verifier/shop": 1.0 - index, **others}}
        tables.score(f"a-{index}", 1.0, evidence=json.dumps(evidence))
    one, short = 0.5 / 0.5001, 2 / 2.0001
    assert advantages(tables) == pytest.approx({"a-0": one - short, "a-1": short - one}, abs=1e-6)
    assert advantages(tables, part_weights={"x": 0.0}) == pytest.approx({"a-0": -short, "a-1": short}, abs=1e-6)


@pytest.mark.parametrize("own", [[{}, {}], [{"x": 1.0}, {"x": 0.0}]])
def test_a_verifier_of_weight_0_has_no_part(own: list[dict[str, float]], tables: Any) -> None:
    for index, rank in enumerate([0.0, 1.0]):
        tables.rollout("a", index, None)
        evidence = {"parts": own[index], "reward": {"verifier/shop": 1.0 - rank, "group": rank}, "verifier_weight": 0.0}
        tables.score(f"a-{index}", rank, evidence=json.dumps(evidence))
    assert advantages(tables) == pytest.approx({"a-0": -0.5 / 0.5001, "a-1": 0.5 / 0.5001}, abs=1e-6)


PARTS = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=2, max_size=5)


@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(groups=st.lists(PARTS, min_size=1, max_size=3), weight=st.floats(0, 4), loo=st.booleans())
def test_advantages_are_those_of_numpy(tables: Any, groups: list[list[tuple[int, int]]], weight: float, loo: bool) -> None:
    tables.trajectories.clear()
    tables.scores.clear()
    expected: dict[str, float] = {}
    for number, rewards in enumerate(groups):
        scored(tables, f"g{number}", *({"x": float(x), "y": float(y)} for x, y in rewards))
        table, count = np.array(rewards, float), len(rewards)
        base = (table.sum(0) - table) / (count - 1) if loo else table.mean(0)
        apart = np.where(np.ptp(table, 0) > 0, (table - base) / (table.std(0) + 1e-4), 0) * [1, weight]
        if np.ptp(table, 0).any():
            expected |= {f"g{number}-{index}": float(value) for index, value in enumerate(apart.sum(1))}
    told = advantages(tables, part_weights={"y": weight}, baseline="leave-one-out" if loo else "mean")
    assert told == pytest.approx(expected, rel=1e-5, abs=1e-5)


def test_settings_that_mean_nothing_are_refused() -> None:
    with pytest.raises(ValueError, match="belongs to `advantage: parts`"):
        Curation.model_validate({"part_weights": {"x": 1.0}})
    with pytest.raises(ValueError, match="compares parts of whole rewards"):
        Curation.model_validate({"advantage": "parts", "credit": "turn"})


def test_a_part_of_weight_0_keeps_no_group(tables: Any) -> None:
    scored(tables, "a", {"right": 1.0, "short": 0.0}, {"right": 1.0, "short": 1.0})
    scored(tables, "b", {"right": 1.0, "short": 1.0}, {"right": 0.0, "short": 0.0})
    result = tables.curate("grpo", advantage="parts", part_weights={"short": 0.0})
    assert (tables.kept(result), result.filtered) == (["b-0", "b-1"], {"zero-variance group": 2})
    nothing = tables.curate("grpo", advantage="parts", part_weights={"right": 0.0, "short": 0.0})
    assert nothing.filtered == {"zero-variance group": 4}
