"""What ppo and sft train on, and how old it may be."""

import pytest

TURNS = [
    {"start": 2, "end": 4, "kind": "main", "finish_reason": "stop"},
    {"start": 5, "end": 7, "kind": "main", "finish_reason": "stop"},
    {"start": 7, "end": 8, "kind": "side", "finish_reason": "stop"},
]
MASK = [False, False, True, True, False, True, True, True]
STREAMS = {"token_ids": list(range(8)), "loss_mask": MASK, "logprobs": [-0.5 * m for m in MASK], "prompt_tokens": 2, "turns": TURNS}


def judge(tables, name, turn, value):
    tables.score(name, value, turn=turn, scorer="prm", origin="judge", success=None)


def test_rewards_are_at_the_last_tokens_of_turns(tables):
    tables.rollout("a", 0, 0.25, **STREAMS)
    judge(tables, "a-0", 0, -1.0)
    judge(tables, "a-0", 1, 0.5)
    judge(tables, "a-0", 2, 9.0)  # of a side turn
    tables.rollout("a", 1, 0.25, **STREAMS)
    tables.rollout("b", 0, None, **STREAMS)
    judge(tables, "b-0", 0, 1.0)
    tables.rollout("b", 1, None, **STREAMS)
    result = tables.curate("ppo")
    assert {row["trajectory_id"]: row["rewards"] for row in tables.rows(result)} == {
        "a-0": [0, 0, 0, -1.0, 0, 0, 0.75, 0],
        "a-1": [0, 0, 0, 0, 0, 0, 0.25, 0],
        "b-0": [0, 0, 0, 1.0, 0, 0, 0, 0],
    }
    assert {tuple(row["advantages"]) for row in tables.rows(result)} == {(0.0,) * 8}
    assert {tuple(row["loss_mask"]) for row in tables.rows(result)} == {(*MASK[:7], False)}
    assert result.filtered == {"no score": 1}


def test_for_a_critic_groups_of_equal_rewards_teach_too(tables):
    for item, rewards in (("a", (1.0, 1.0)), ("b", (0.0,))):
        for index, reward in enumerate(rewards):
            tables.rollout(item, index, reward)
    result = tables.curate("ppo")
    assert [row["rewards"] for row in tables.rows(result)] == [[0, 0, 0, 0, 1.0]] * 2 + [[0.0] * 5]
    assert result.filtered == {}


@pytest.mark.parametrize("method", ["sft", "grpo", "opd", "combine"])
def test_other_methods_have_no_rewards(method, tables):
    for index in range(2):
        tables.rollout("a", index, float(index))
        tables.score(f"a-{index}", 0.0, origin="judge", scorer="prm", hints=["so"])
    assert {row["rewards"] for row in tables.rows(tables.curate(method))} == {None}


def test_the_best_of_each_group_that_varies_is_imitated(tables):
    for item, rewards in {"a": (0.1, 0.5, 0.5, 0.3), "b": (1.0, 1.0), "c": (1.0,), "d": (0.0, 1.0)}.items():
        for index, reward in enumerate(rewards):
            tables.rollout(item, index, reward, text=f"{item} {index}")
    result = tables.curate("sft", imitate="chosen")
    assert tables.kept(result) == ["a-1", "d-1"]
    assert result.filtered == {"not the best of its group": 4, "zero-variance group": 2, "group of one": 1}
    assert tables.kept(tables.curate("sft")) == ["b-0", "b-1", "c-0", "d-1"]


def test_a_reply_chosen_in_two_groups_is_imitated_once(tables, say):
    def said(text):
        return [say("user", "q"), say("assistant", text)]

    for item in "ab":
        for index, (reward, text) in enumerate([(1.0, "right"), (0.5, f"nearly {item}"), (0.0, f"wrong {item}")]):
            tables.rollout(item, index, reward, messages=said(text))
    result = tables.curate("sft", imitate="chosen")
    assert tables.kept(result) == ["a-0"]
    assert result.filtered == {"not the best of its group": 4, "duplicate": 1}


@pytest.mark.parametrize(
    ("method", "limit", "expected"),
    [
        ("grpo", None, {}),
        ("grpo", 0, {"policy version too old": 4, "policy version unknown": 2}),
        ("grpo", 5, {"policy version unknown": 2}),
        *((method, 1, {"policy version too old": 2, "policy version unknown": 2}) for method in ("sft", "grpo", "ppo", "dpo")),
    ],
)
def test_what_is_too_old_is_filtered(method, limit, expected, tables):
    for number, version in enumerate(["p0", "p1", "p2", "q"]):
        for index in range(2):
            fields = {"policy_version": version, "group_id": f"{version}{number}/{version}"}
            tables.rollout(f"{version}{number}", index, float(index), **fields)
    result = tables.curate(method, max_staleness=limit, versions=["p2", "p1", "p0"])
    stale = {reason: rows for reason, rows in result.filtered.items() if reason.startswith("policy version")}
    assert stale == expected
    assert (limit != 0) or len({row["policy_version"] for row in tables.rows(result)} - {"p2"}) == 0


def test_for_kto_each_trajectory_is_labelled_by_its_own_verdict(tables):
    """Without success the sign of the score decides; a neutral score is no label."""
    tables.rollout("a", 0, 1.0, **STREAMS)
    tables.rollout("b", 0, 0.0, **STREAMS)
    for index, (reward, success) in enumerate([(0.4, None), (-0.4, None), (0.0, None), (0.9, False)]):
        tables.rollout("c", index, None)
        tables.score(f"c-{index}", reward, success=success)
    tables.rollout("d", 0, None)
    result = tables.curate("kto")
    labels = {row["trajectory_id"]: set(row["advantages"]) - {0.0} for row in tables.rows(result)}
    assert labels == {"a-0": {1.0}, "b-0": {-1.0}, "c-0": {1.0}, "c-1": {-1.0}, "c-3": {-1.0}}
    assert result.filtered == {"no verifier score but a neutral one": 1, "no verifier score": 1}
    [row] = [row for row in tables.rows(result) if row["trajectory_id"] == "a-0"]
    assert row["loss_mask"] == [*MASK[:7], False]  # a side turn is no part of the answer
