"""Demonstrations are imitated: bounded in number and weight, and no rollout is compared with them."""

from __future__ import annotations

from typing import Any

import pytest

SHOWN = {"format": "demonstration", "file": "shop", "line": 1}
ALONE = {"share": 1.0}


def demonstrate(tables: Any, item: str, reward: float = 1.0, **fields: Any) -> str:
    """Add what the environment would have said at an item: two tokens after the prompt of its rollouts."""
    rendered = {"rendered_ids": [1, 2, 3, 7, 8], "rendered_mask": [False] * 3 + [True] * 2}
    text: dict[str, Any] = {stream: [] for stream in ("token_ids", "loss_mask", "logprobs", "turns")}
    text |= {"prompt_tokens": 0, "tokens": "none", "logprobs_kind": None}
    name = f"shown-{item}"
    tables.rollout(item, 9, reward, "the solution", trajectory_id=name, origin=SHOWN, **text | rendered | fields)
    return name


def failing_and_varied(tables: Any) -> None:
    """No rollout of item a succeeds, one of item b does."""
    for item, rewards in (("a", (0.0, 0.0)), ("b", (0.0, 1.0))):
        for index, reward in enumerate(rewards):
            tables.rollout(item, index, reward)


@pytest.mark.parametrize("method", ["grpo", "ppo", "combine"])
def test_methods_with_ratios_imitate_them_as_text(tables: Any, method: str) -> None:
    failing_and_varied(tables)
    name = demonstrate(tables, "a")
    result = tables.curate(method, demonstrations=ALONE)
    row = next(row for row in tables.rows(result) if row["trajectory_id"] == name)
    assert (row["policy_version"], row["group_id"], row["weight"], row["temperature"]) == ("text", "a/p0", 0.5, 0.8)
    assert (row["token_ids"], row["loss_mask"]) == ([1, 2, 3, 7, 8], [False] * 3 + [True] * 2)
    assert (row["logprobs"], row["advantages"]) == ([0.0] * 5, [0.0, 0.0, 0.0, 1.0, 1.0])
    assert result.details["demonstrations"] == 1
    assert (result.details["success_rate"], result.details["reward_mean"]) == (0.25, 0.25)  # of what the policy did


def test_no_rollout_is_compared_with_a_demonstration(tables: Any) -> None:
    failing_and_varied(tables)
    without = tables.curate("grpo")
    demonstrate(tables, "a")
    demonstrate(tables, "b")
    told = {row["trajectory_id"]: row["advantages"] for row in tables.rows(tables.curate("grpo", demonstrations=ALONE))}
    known = {row["trajectory_id"]: row["advantages"] for row in tables.rows(without)}
    assert {name: told[name] for name in known} == known
    assert set(told) - set(known) == {"shown-a", "shown-b"}


def test_a_teacher_has_nothing_to_say_about_them(tables: Any) -> None:
    tables.rollout("a", 0, None)
    tables.score("a-0", 0.0, hints=["Call stock."])
    demonstrate(tables, "a")
    told = {row["trajectory_id"]: row["advantages"][3:] for row in tables.rows(tables.curate("opd", demonstrations=ALONE))}
    assert told == {"a-0": [0.0, 0.0], "shown-a": [1.0, 1.0]}


def test_they_are_the_chosen_side_against_failures(tables: Any) -> None:
    failing_and_varied(tables)
    demonstrate(tables, "a")
    result = tables.curate("dpo", demonstrations=ALONE)
    pairs = {(row["chosen_id"], row["rejected_id"]): row["weight"] for row in tables.rows(result)}
    assert pairs == {("shown-a", "a-0"): 0.5, ("shown-a", "a-1"): 0.5, ("b-1", "b-0"): 1.0}
    assert result.details["demonstrations"] == 2


def test_kto_and_sft_take_them_as_successes(tables: Any) -> None:
    failing_and_varied(tables)
    demonstrate(tables, "a")
    labels = {row["trajectory_id"]: row["advantages"][-1] for row in tables.rows(tables.curate("kto", demonstrations=ALONE))}
    assert labels == {"a-0": -1.0, "a-1": -1.0, "b-0": -1.0, "b-1": 1.0, "shown-a": 1.0}
    for imitate in ("success", "chosen"):
        assert tables.kept(tables.curate("sft", demonstrations=ALONE, imitate=imitate)) == ["shown-a", "b-1"]


def test_one_that_does_not_succeed_is_filtered(tables: Any) -> None:
    failing_and_varied(tables)
    demonstrate(tables, "a", reward=0.5)
    assert tables.curate("grpo", demonstrations=ALONE).filtered["demonstration without success"] == 1


def test_a_heldout_question_is_filtered_from_them_too(tables: Any) -> None:
    tables.item("h", "about a?", split="heldout")
    demonstrate(tables, "a")
    assert tables.curate("sft", demonstrations=ALONE).filtered == {"held-out question": 1}


@pytest.mark.parametrize(("share", "kept"), [(0.5, 2), (0.34, 1), (0.3, 0), (1.0, 3)])
def test_their_share_of_the_rows_is_bounded(tables: Any, share: float, kept: int) -> None:
    for item in "abc":
        tables.rollout(item, 0, 0.0)
        demonstrate(tables, item)
    for index in range(2):
        tables.rollout("d", index, float(index))
    result = tables.curate("grpo", demonstrations={"share": share})
    assert sum(row["policy_version"] == "text" for row in tables.rows(result)) == kept
    assert result.filtered.get("beyond the share of demonstrations", 0) == 3 - kept


def test_a_groups_pass_rate_is_that_of_its_rollouts(tables: Any) -> None:
    failing_and_varied(tables)
    demonstrate(tables, "b")
    result = tables.curate("grpo", demonstrations=ALONE, sampling={"difficulty": {"low": 0.5, "high": 0.5}})
    assert tables.kept(result) == ["b-0", "b-1", "shown-b"]
