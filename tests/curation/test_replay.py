"""Rollouts of earlier nights beside tonight's: their share, and what tonight may not learn from."""

from __future__ import annotations

from typing import Any

import pytest

from clawpipe.core.config.curation import Curation, Sampling
from clawpipe.data.curation.runner import curate

TONIGHT, BEFORE = "p0", "old"


def old(tables: Any, item: str, index: int, reward: float) -> None:
    tables.rollout(item, index, reward, policy_version=BEFORE, group_id=f"{item}/{BEFORE}", trajectory_id=f"old-{item}-{index}")


def nights(tables: Any) -> None:
    """Two varied groups of tonight, two of an earlier night."""
    for item in "ab":
        for index in range(2):
            tables.rollout(item, index, float(index))
            old(tables, f"{item}9", index, float(index))


@pytest.mark.parametrize(("share", "counts"), [(0.5, (2, 2, 0)), (0.67, (2, 2, 2)), (0.75, (4, 2, 2))])
def test_replay_goes_to_the_slices_asked_least_tonight(tables: Any, share: float, counts: tuple[int, int, int]) -> None:
    """Tonight asks for calc alone; the earlier night asked for three things, and its items say which. Groups stay whole."""
    for item, part in {"a": "calc", "b9": "calc", "c9": "price", "d9": "stock"}.items():
        for index in range(2):
            old(tables, item, index, 1.0) if item.endswith("9") else tables.rollout(item, index, float(index))
        tables.item(item, f"{item}?")
        tables.items[-1]["slice"] = part
    rows = tables.trajectories
    tonight, before = (tables.publish("trajectories", part) for part in (rows[:2], rows[2:]))
    scores, (items, *asked) = tables.publish("scores", tables.scores), [tables.publish("task_items", [row]) for row in tables.items]
    config = Curation.model_validate({"sampling": {"replay": share, "replay_nights": 1}})
    given = {"versions": [TONIGHT, BEFORE], "earlier": 1, "earlier_items": asked}
    result = curate(tables.store, [tonight, before], [scores], items, config, "grpo", **given)
    told = [{"a": 0, "b9": 0, "c9": 1, "d9": 2}[row["item_id"]] for row in tables.rows(result)]
    assert tuple(map(told.count, range(3))) == counts
    assert result.details["success_rate"] == 0.5  # tonight's


@pytest.mark.parametrize(("share", "kept"), [(0.5, 4), (0.4, 2), (0.1, 0)])
def test_earlier_rows_have_their_share_and_their_log_probs(tables: Any, share: float, kept: int) -> None:
    nights(tables)
    result = tables.curate("grpo", versions=[TONIGHT, BEFORE], sampling={"replay": share, "replay_nights": 1})
    earlier = [row for row in tables.rows(result) if row["policy_version"] == BEFORE]
    assert len(earlier) == kept == result.details.get("older_policies", 0)
    assert all(row["logprobs"][3:] == [-0.5, -0.25] for row in earlier)
    assert len(tables.kept(result)) == 4 + kept


def test_the_same_policy_of_an_earlier_night_counts_as_older(tables: Any) -> None:
    """Nights that start from the base sample their first rounds by one policy."""
    for item in "ab":
        for index in range(2):
            tables.rollout(item, index, float(index))
    tonight = tables.publish("trajectories", tables.trajectories)
    tables.trajectories.clear()
    for item in "cd":
        for index in range(2):
            tables.rollout(item, index, float(index))
    before = tables.publish("trajectories", tables.trajectories)
    scores, items = tables.publish("scores", tables.scores), tables.publish("task_items", [])
    for method, share in (("grpo", 0.2), ("dpo", 0.34)):  # of rows, of pairs
        config = Curation.model_validate({"sampling": {"replay": share, "replay_nights": 1}})
        result = curate(tables.store, [tonight, before], [scores], items, config, method, versions=[TONIGHT], earlier=1)
        told = {row["item_id"] for row in tables.rows(result)}
        assert (len(told), {"a", "b"} <= told) == (3, True)


def test_what_succeeded_in_earlier_nights_is_imitated(tables: Any) -> None:
    """Also where its whole group did: that is what the policy can do and may lose. The teacher sees tonight's hints alone."""
    for index in range(2):
        tables.rollout("a", index, float(index))
        tables.rollout("b", index, 1.0)
    tables.scores[3]["hints"] = ["Use the tool."]  # of a success of `b`, whose group does not vary
    tonight = tables.publish("trajectories", tables.trajectories)
    tables.trajectories.clear()
    for index in range(2):
        old(tables, "c", index, float(index))
        old(tables, "d", index, 1.0)
    for score in tables.scores[4:]:
        score["hints"] = ["Use the tool."]
    before = tables.publish("trajectories", tables.trajectories)
    scores, items = tables.publish("scores", tables.scores), tables.publish("task_items", [])
    config = Curation.model_validate({"sampling": {"replay": 0.5, "replay_nights": 1}})
    versions = [TONIGHT, BEFORE]
    result = curate(
        tables.store, [tonight, before], [scores], items, config, "combine", weights=(1.0, 1.0), versions=versions, earlier=1
    )
    assert sorted(tables.kept(result)) == ["a-0", "a-1", "b-1", "old-c-1", "old-d-0", "old-d-1"]
    assert result.filtered == {"zero-variance group, no hint": 1, "replayed without success": 1}
    earlier = [row for row in tables.rows(result) if row["trajectory_id"].startswith("old")]
    assert {(row["policy_version"], *row["advantages"][3:]) for row in earlier} == {("text", 1.0, 1.0)}
    assert (result.details["older_policies"], result.details.get("demonstrations")) == (3, None)


def test_what_is_held_out_tonight_is_not_replayed(tables: Any) -> None:
    nights(tables)
    tables.item("h", "about a9?", split="heldout")
    result = tables.curate("sft", versions=[TONIGHT, BEFORE], sampling={"replay": 0.5, "replay_nights": 1})
    assert tables.kept(result) == ["a-1", "b-1", "old-b9-1"]
    assert result.filtered["held-out question"] == 2


def test_staleness_bounds_how_far_back_replay_goes(tables: Any) -> None:
    nights(tables)
    for limit, kept in ((2, 4), (1, 0)):
        sampling = {"replay": 0.5, "replay_nights": 1}
        result = tables.curate("grpo", versions=[TONIGHT, "between", BEFORE], max_staleness=limit, sampling=sampling)
        assert result.details.get("older_policies", 0) == kept


def test_replay_without_a_share_is_refused() -> None:
    with pytest.raises(ValueError, match="needs a share"):
        Sampling(replay_nights=3)
