"""Preference pairs, against plain Python."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from clawpipe.core.contracts import schema_of
from clawpipe.core.contracts.validate import validate
from clawpipe.core.store.datasets import read_dataset


def group(tables, item, *rewards, **fields):
    for index, reward in enumerate(rewards):
        tables.rollout(item, index, reward, **fields)


def turn(start, end, kind="main"):
    return {"start": start, "end": end, "kind": kind, "finish_reason": "stop"}


def sides(tables, result):
    return [(row["chosen_id"], row["rejected_id"]) for row in tables.rows(result)]


def test_a_pair_holds_both_sides_as_they_were_recorded(tables, say):
    call = ("c", "stock", "{}")
    ask, right = say("user", "how many?"), [say("assistant", "", call), say("tool", "5"), say("assistant", "5")]
    streams = {"token_ids": [1, 2, 3, 4, 5, 6], "loss_mask": [False] * 3 + [True, False, True], "logprobs": [0.0] * 6}
    tables.rollout("a", 0, 0.25)
    tables.rollout("a", 1, 1.0, messages=[ask, *right], turns=[turn(3, 4), turn(5, 6)], **streams)
    result = tables.curate("dpo")
    [row] = tables.rows(result)
    pair_id = row.pop("pair_id")
    assert len(pair_id) == 16
    assert row == {
        "item_id": "a",
        "group_id": "a/p0",
        "strategy": "all-margin",
        "margin": 0.75,
        "chosen_id": "a-1",
        "rejected_id": "a-0",
        "policy_version": "p0",
        "renderer_digest": "r0",
        "prompt_tokens": 3,
        "chosen_token_ids": [1, 2, 3, 4, 5, 6],
        "chosen_loss_mask": [False, False, False, True, False, True],
        "rejected_token_ids": [1, 2, 3, 10, 11],
        "rejected_loss_mask": [False, False, False, True, True],
        "temperature": 0.8,
        "weight": 1.0,
        "session_id": None,
        **dict.fromkeys(("user_id", "tools", "origin", "extra")),
        "tokens": "recorded",
        "prompt": [ask],
        "chosen": right,
        "rejected": [say("assistant", "answer 0")],
    }
    assert result.output.name == "preference_pairs"


def test_an_item_may_begin_with_a_dialogue(tables, say):
    shown = [say("user", "q"), say("assistant", "a"), say("user", "again?")]
    for index, text in enumerate(["no", "yes"]):
        tables.rollout("a", index, float(index), messages=[*shown, say("assistant", text)])
    [row] = tables.rows(tables.curate("dpo"))
    assert (row["prompt"], row["chosen"], row["rejected"]) == (shown, [say("assistant", "yes")], [say("assistant", "no")])


def test_side_turns_leave_the_masks(tables):
    group(tables, "a", 0.0, 1.0, turns=[turn(3, 4, "side"), turn(4, 5)])
    [row] = tables.rows(tables.curate("dpo"))
    assert row["chosen_loss_mask"] == row["rejected_loss_mask"] == [False, False, False, False, True]


def test_pairs_keep_their_contract_and_their_order(tables):
    for item in "cab":
        group(tables, item, 0.0, 1.0, 0.5, 1.0)
    result = tables.curate("dpo", pairs={"per_group": 9})
    table = read_dataset(tables.store, result.output)
    assert table.schema.equals(schema_of("preference_pairs"))
    assert validate(tables.store, result.output, "preference_pairs").output == result.output
    assert sides(tables, result)[:4] == [("a-1", "a-0"), ("a-3", "a-0"), ("a-1", "a-2"), ("a-3", "a-2")]
    assert table["group_id"].to_pylist() == ["a/p0"] * 4 + ["b/p0"] * 4 + ["c/p0"] * 4
    assert len(set(table["pair_id"].to_pylist())) == 12


def test_the_textbook_example(tables):
    """g1 has rewards 1, .8, .5, .2, 0, of which the first two are successes."""
    for item, rewards in {"g1": (1.0, 0.8, 0.5, 0.2, 0.0), "g2": (0.5, 0.5), "g3": (0.9, 0.85)}.items():
        for index, reward in enumerate(rewards):
            tables.rollout(item, index, None)
            tables.score(f"{item}-{index}", reward, success=reward >= 0.8)
    names = dict(zip([f"g1-{index}" for index in range(5)], "abcde", strict=True))
    result = tables.curate("dpo", pairs={"margin": 0.3, "per_group": 9})
    assert {"-".join(map(names.get, pair)) for pair in sides(tables, result)} == {"a-c", "a-d", "a-e", "b-c", "b-d", "b-e"}
    assert result.filtered == {"no success in its group": 2, "no failure in its group": 2}
    assert (result.details["groups_without_success"], result.details["groups_without_failure"]) == (1, 1)
    best = tables.curate("dpo", pairs={"margin": 0.3, "strategy": "best-worst"})
    assert ["-".join(map(names.get, pair)) for pair in sides(tables, best)] == ["a-e"]
    assert cut(best, "65_pairs_choice") == {"not best against worst": 5}


def test_failures_are_never_chosen_nor_successes_rejected(tables):
    group(tables, "a", 0.0, 0.5, 1.0)
    tables.rollout("a", 3, None)
    tables.score("a-3", 0.25, success=True)
    assert sides(tables, tables.curate("dpo")) == [("a-2", "a-0"), ("a-2", "a-1"), ("a-3", "a-0")]


@pytest.mark.parametrize(("margin", "pairs"), [(0.1, 2), (0.1000001, 1), (0.4, 1), (0.41, 0), (0.0, 2)])
def test_the_margin_guards(margin, pairs, tables):
    for index, (reward, success) in enumerate([(0.6, True), (0.5, False), (0.2, False)]):
        tables.rollout("a", index, None)
        tables.score(f"a-{index}", reward, success=success)
    result = tables.curate("dpo", pairs={"margin": margin})
    assert result.rows_out == pairs
    assert cut(result, "60_pairs_made") == ({"margin too small": 2 - pairs} if pairs < 2 else {})


def test_the_cap_takes_largest_margins_then_sides_in_turn(tables):
    group(tables, "a", 1.0, 0.5, 1.0, 0.5, 1.0, 0.0)
    result = tables.curate("dpo", pairs={"per_group": 5})
    # margin 1: every success against a-5; margin 0.5: along the diagonal
    assert set(sides(tables, result)) == {("a-0", "a-5"), ("a-2", "a-5"), ("a-4", "a-5"), ("a-0", "a-1"), ("a-2", "a-3")}
    assert cut(result, "65_pairs_choice") == {"beyond the cap of its group": 4}


def test_with_equal_margins_each_side_is_used_once_first(tables):
    group(tables, "a", 1.0, 0.0, 1.0, 0.0, 1.0, 0.0, 0.0)
    pairs = sides(tables, tables.curate("dpo", pairs={"per_group": 3}))
    assert len({chosen for chosen, _ in pairs}) == len({rejected for _, rejected in pairs}) == 3


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"token_ids": [1, 2, 9, 10, 11]}, "prompts differ"),
        ({"prompt_tokens": 2}, "prompts differ"),
        ({"temperature": 0.5}, "temperatures differ"),
        ({"text": "  ANSWER\n1"}, "sides nearly identical"),
        ({"text": "\u3000Answer\u00a0 1\t"}, "sides nearly identical"),
        ({"text": "ans wer 1"}, None),
        ({"text": "answer 1."}, None),
    ],
)
def test_sides_that_cannot_be_compared_are_filtered(fields, reason, tables):
    tables.rollout("a", 0, 0.0, **fields)
    tables.rollout("a", 1, 1.0)
    result = tables.curate("dpo")
    assert result.rows_out == (0 if reason else 1)
    assert result.filtered == ({"in no pair": 2} if reason else {})
    assert cut(result, "60_pairs_made") == ({reason: 1} if reason else {})


def test_the_same_conversation_counts_once_in_its_group(tables):
    group(tables, "a", 1.0, 1.0, text="same")
    tables.rollout("a", 2, 0.0)
    result = tables.curate("dpo")
    assert sides(tables, result) == [("a-0", "a-2")]
    assert result.filtered == {"duplicate": 1}


def test_an_empty_result_says_why(tables):
    group(tables, "a", 0.5, 0.25)
    result = tables.curate("dpo")
    assert (result.rows_in, result.rows_out, result.filtered) == (2, 0, {"no success in its group": 2})
    assert result.details["paired"] == 0
    assert read_dataset(tables.store, result.output).schema.equals(schema_of("preference_pairs"))


GROUPS = st.lists(st.lists(st.sampled_from([None, 0.0, 0.3, 0.35, 1.0]), max_size=6), max_size=4)


@given(groups=GROUPS, margin=st.sampled_from([0.0, 0.1, 0.68]), cap=st.integers(1, 4), best=st.booleans())
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_pairs_are_those_of_plain_python_and_counts_add_up(groups, margin, cap, best, tables):
    tables.trajectories, tables.scores = [], []
    for item, rewards in enumerate(groups):
        group(tables, f"i{item}", *rewards)
    strategy = "best-worst" if best else "all-margin"
    result = tables.curate("dpo", pairs={"margin": margin, "per_group": cap, "strategy": strategy})
    rows = tables.rows(result)
    for item, rewards in enumerate(groups):
        told = sorted((row["margin"] for row in rows if row["item_id"] == f"i{item}"), reverse=True)
        margins = sorted(1.0 - r for r in rewards if r is not None and r < 1 and 1 - r >= margin for _ in range(rewards.count(1.0)))
        assert told == margins[::-1][: 1 if best else cap]
    add_up(result, sum(map(len, groups)), {name for row in rows for name in (row["chosen_id"], row["rejected_id"])})


def cut(result, step):
    return {entry["step"]: entry["filtered"] for entry in result.details["steps"]}[step]


def add_up(result, trajectories, paired):
    assert result.rows_in == trajectories == result.details["paired"] + sum(result.filtered.values())
    assert result.details["paired"] == len(paired)
    steps = result.details["steps"]
    for step, following in zip(steps, [*steps[1:], {"rows_in": result.rows_out, "unit": "pairs"}], strict=True):
        assert step["rows_in"] == step["rows_out"] + sum(step["filtered"].values())
        assert step["rows_out"] == following["rows_in"] or step["unit"] != following["unit"]
    assert all(step["unit"] == ("pairs" if step["step"] >= "60" else "trajectories") for step in steps)


def test_the_bytes_are_the_same_on_every_number_of_threads(tables):
    for item in range(100):
        group(tables, f"i{item:03d}", *((item * index) % 4 / 3 for index in range(8)))
    results = [tables.curate("dpo", threads=threads) for threads in (1, 2, 4, 4)]
    assert len({result.output.digest for result in results}) == 1
    assert len({repr(result.details) for result in results}) == 1


def test_pairs_made_some_groups_at_a_time_are_the_same(tables, monkeypatch):
    for number in range(12):
        group(tables, f"i{number}", 1.0, 0.0, 0.5, 0.25)
    whole = tables.curate("dpo")
    monkeypatch.setattr("clawpipe.data.curation.steps._SLICE", 7)
    sliced = tables.curate("dpo")
    assert sliced.output.digest == whole.output.digest
    assert sliced.details == whole.details


def test_opposite_pairs_of_two_groups_do_not_both_train(tables, say):
    """As when two sources judge the same answers in opposite ways."""
    for group, rewards in (("g1", (1.0, 0.0)), ("g2", (0.0, 1.0)), ("g3", (1.0, 0.0))):
        for index, (text, reward) in enumerate(zip(("yes", "no" if group != "g3" else "never"), rewards, strict=True)):
            said = [say("user", "about a?"), say("assistant", text)]
            tables.rollout("a", index, reward, messages=said, group_id=group, trajectory_id=f"{group}-{text}")
    result = tables.curate("dpo")
    assert [(row["chosen_id"], row["rejected_id"]) for row in tables.rows(result)] == [("g3-yes", "g3-never")]
    [step] = [step for step in result.details["steps"] if step["step"] == "62_pairs_contradicted"]
    assert step["filtered"] == {"opposite of another pair": 2}
