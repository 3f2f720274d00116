"""Advantages of groups, against plain Python."""

from statistics import pstdev

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

GROUPS = st.lists(st.lists(st.integers(0, 10).map(lambda tenths: tenths / 10), min_size=1, max_size=5), min_size=1, max_size=4)
BASELINES, ADVANTAGES = st.sampled_from(["mean", "leave-one-out"]), st.sampled_from(["none", "group", "batch"])
FEW = settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def fill(tables, groups):
    tables.trajectories, tables.scores = [], []
    for item, rewards in enumerate(groups):
        for index, reward in enumerate(rewards):
            tables.rollout(f"i{item}", index, reward)


def by_group(tables, result):
    """The advantages of each group, in order; every trained token of a row has the same."""
    groups = {}
    for row in tables.rows(result):
        assert row["advantages"] == [0.0, 0.0, 0.0, row["advantages"][3], row["advantages"][3]]
        groups.setdefault(row["item_id"], []).append(row["advantages"][3])
    return groups


def expected(groups, advantage, baseline):
    varied = {f"i{item}": rewards for item, rewards in enumerate(groups) if len(set(rewards)) > 1}
    everything = [reward for rewards in varied.values() for reward in rewards]
    told = {}
    for item, rewards in varied.items():
        scale = {"none": 1.0, "group": pstdev(rewards) + 1e-4, "batch": pstdev(everything) + 1e-4}[advantage]
        others = {"mean": len(rewards), "leave-one-out": len(rewards) - 1}[baseline]
        total = sum(rewards)
        told[item] = [(r - (total if baseline == "mean" else total - r) / others) / scale for r in rewards]
    return told


@given(groups=GROUPS, baseline=BASELINES, advantage=ADVANTAGES)
@settings(FEW, max_examples=18)
def test_advantages_are_those_of_plain_python(groups, baseline, advantage, tables):
    fill(tables, groups)
    result = tables.curate(advantage=advantage, baseline=baseline)
    told = by_group(tables, result)
    for item, values in expected(groups, advantage, baseline).items():
        assert told.pop(item) == pytest.approx(values, rel=1e-5, abs=1e-6)
    assert told == {}


@given(groups=GROUPS, baseline=BASELINES, advantage=ADVANTAGES)
@FEW
def test_the_advantages_of_a_group_sum_to_zero(groups, baseline, advantage, tables):
    fill(tables, groups)
    for values in by_group(tables, tables.curate(advantage=advantage, baseline=baseline, drop_zero_variance_groups=False)).values():
        assert sum(values) == pytest.approx(0, abs=1e-5 * max(1, *map(abs, values)))


@given(groups=GROUPS)
@FEW
def test_leaving_oneself_out_scales_by_the_size_of_the_group(groups, tables):
    fill(tables, groups)
    centred, left_out = (by_group(tables, tables.curate(advantage="none", baseline=name)) for name in ("mean", "leave-one-out"))
    for item, values in centred.items():
        size = len(values)
        assert left_out[item] == pytest.approx([value * size / (size - 1) for value in values], rel=1e-5, abs=1e-6)


def test_the_textbook_example(tables):
    fill(tables, [[1, 0.8, 0.5, 0.2, 0], [0.5, 0.5], [0.9, 0.85]])
    told = by_group(tables, tables.curate())
    assert told["i0"] == pytest.approx([1.36, 0.81, 0, -0.81, -1.36], abs=0.005)
    assert told["i2"] == pytest.approx([1.0, -1.0], abs=0.005)
    assert "i1" not in told
