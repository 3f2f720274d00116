"""Episodes that left several rows, as those of programs do: each is one draw of its group; all figures are written by hand."""

from __future__ import annotations

import json
from math import sqrt
from typing import Any

import pytest


def episode(tables: Any, item: str, index: int, reward: float, *tokens: int) -> None:
    """An episode of a row for each number, which has as many trained tokens."""
    first = f"{item}-{index}-0"
    for part, trained in enumerate(tokens):
        extra = {"episode": first} | ({"part": part} if part else {}) if len(tokens) > 1 else {}
        tables.rollout(
            item,
            index,
            reward,
            f"answer {index} {part}",
            trajectory_id=f"{item}-{index}-{part}",
            extra=json.dumps(extra),
            token_ids=[1, 2, 3, *range(10, 10 + trained)],
            loss_mask=[False] * 3 + [True] * trained,
            logprobs=[0.0] * 3 + [-0.5] * trained,
            turns=[{"start": 3, "end": 3 + trained, "kind": "main", "finish_reason": "stop"}],
        )


@pytest.fixture
def three(tables: Any) -> Any:
    """A success that left two rows, of two and of four tokens, and two failures of one row each."""
    for index, (reward, tokens) in enumerate([(1.0, (2, 4)), (0.0, (3,)), (0.0, (3,))]):
        episode(tables, "a", index, reward, *tokens)
    return tables


def advantages(tables: Any, **config: Any) -> dict[str, float]:
    return {row["trajectory_id"]: row["advantages"][3] for row in tables.rows(tables.curate(**config))}


@pytest.mark.parametrize(
    ("baseline", "advantage", "won", "lost"),
    [
        ("mean", "none", 2 / 3, -1 / 3),
        ("leave-one-out", "none", 1.0, -0.5),
        ("mean", "group", 2 / 3 / (sqrt(2 / 9) + 1e-4), -1 / 3 / (sqrt(2 / 9) + 1e-4)),
        ("mean", "batch", 2 / 3 / (sqrt(2 / 9) + 1e-4), -1 / 3 / (sqrt(2 / 9) + 1e-4)),
    ],
)
def test_an_episode_counts_once_in_its_group(three, baseline, advantage, won, lost):
    told = advantages(three, baseline=baseline, advantage=advantage)
    assert told == pytest.approx({"a-0-0": won, "a-0-1": won, "a-1-0": lost, "a-2-0": lost}, rel=1e-5)


def test_parts_of_rewards_are_compared_by_episode(three):
    for score in three.scores:
        score["evidence"] = json.dumps({"parts": {"right": score["value"]}})
    scale = sqrt(2 / 9) + 1e-4
    told = advantages(three, advantage="parts")
    assert told == pytest.approx({"a-0-0": 2 / 3 / scale, "a-0-1": 2 / 3 / scale, "a-1-0": -1 / 3 / scale, "a-2-0": -1 / 3 / scale})


def test_an_episode_has_one_value_of_each_part(tables):
    """One row of an episode was made likelier, and the other one less likely."""
    short = {"a-0-0": 1.0, "a-0-1": 0.0, "a-1-0": 0.0}
    for index, tokens in enumerate([(2, 2), (2,)]):
        episode(tables, "a", index, 0.0, *tokens)
    for score in tables.scores:
        score["evidence"] = json.dumps({"parts": {"short": short[score["trajectory_id"]]}})
    one = 0.25 / (0.25 + 1e-4)  # the episode has 0.5, the mean of its rows, and the other one 0
    assert advantages(tables, advantage="parts") == pytest.approx({"a-0-0": one, "a-0-1": one, "a-1-0": -one})


def test_an_episode_has_one_reward_the_mean_of_its_rows(three):
    three.score("a-0-1", 0.5, scorer="a", success=False)  # the first by the scorer's name counts
    told = advantages(three, advantage="none")
    assert told == pytest.approx({"a-0-0": 0.5, "a-0-1": 0.5, "a-1-0": -0.25, "a-2-0": -0.25})


def test_one_episode_of_several_rows_is_a_group_of_one(tables):
    episode(tables, "a", 0, 1.0, 2, 2)
    result = tables.curate()
    assert (tables.kept(result), result.filtered) == ([], {"group of one": 2})


def test_a_mean_over_rows_shares_the_weight_of_an_episode(three):
    def weights(method: str, **more: Any) -> dict[str, float]:
        return {row["trajectory_id"]: row["weight"] for row in three.rows(three.curate(method, **more))}

    others = {"a-1-0": 1.0, "a-2-0": 1.0}
    assert weights("grpo", normalise="sequence") == pytest.approx({"a-0-0": 1 / 3, "a-0-1": 2 / 3, **others})
    assert weights("kto") == pytest.approx({"a-0-0": 0.5, "a-0-1": 0.5, **others})
    assert weights("grpo") == {"a-0-0": 1.0, "a-0-1": 1.0, **others}  # each token counts once


def test_the_best_of_a_group_is_all_that_its_episode_left(three):
    assert three.kept(three.curate("sft", imitate="chosen")) == ["a-0-0", "a-0-1"]


def test_a_pass_rate_counts_episodes(tables):
    episode(tables, "a", 0, 1.0, 2, 2, 2)
    episode(tables, "a", 1, 0.0, 2)
    assert len(tables.kept(tables.curate(sampling={"difficulty": {"low": 0.4, "high": 0.6}}))) == 4
