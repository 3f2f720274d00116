"""What each step sets aside, on rows planted for it."""

from collections import Counter

import pytest

from clawpipe.core.config.methods import METHODS
from clawpipe.data.curation.statements import SQL

NAN = float("nan")


def group(tables, item, *rewards, **fields):
    for index, reward in enumerate(rewards):
        tables.rollout(item, index, reward, **fields)


def advantages(tables, result):
    return [row["advantages"][3] for row in tables.rows(result)]


def test_rows_without_a_verifiers_score_are_filtered(tables):
    group(tables, "a", 0.0, 1.0, None, None)
    tables.score("a-2", 1.0, origin="judge", scorer="judge")
    tables.score("a-3", 1.0, turn=0)
    result = tables.curate()
    assert result.filtered == {"no verifier score": 2}
    assert tables.kept(result) == ["a-0", "a-1"]


def test_of_several_verifiers_the_first_by_name_counts(tables):
    group(tables, "a", 0.0, 1.0)
    tables.score("a-0", 1.0, scorer="verifier/zoo")
    assert tables.curate().details["reward_mean"] == 0.5


def test_a_trajectory_given_twice_counts_once(tables):
    group(tables, "a", 0.0, 1.0)
    group(tables, "a", 0.0, 1.0)
    assert tables.curate().filtered == {"trajectory given twice": 2}


@pytest.mark.parametrize("method", ["grpo", "sft"])
def test_what_cannot_be_trained_on_is_filtered(method, tables):
    wrong = [
        ({"tokens": "none"}, "tokens not recorded"),
        ({"token_ids": [1] * 9, "loss_mask": [False, True] * 4 + [False], "logprobs": [0.0] * 9}, "too long"),
        ({"loss_mask": [False] * 5, "turns": []}, "nothing to train on"),
        ({"turns": [{"start": 3, "end": 5, "kind": "side", "finish_reason": "stop"}]}, "nothing to train on"),
        ({"temperature": 0.0}, "sampled at temperature 0"),
        ({"logprobs": [0.0, 0.0, 0.0, NAN, -0.25]}, "log-prob not finite"),
        ({"logprobs": [0.0, 0.0, 0.0, -0.5, -float("inf")]}, "log-prob not finite"),
    ]
    group(tables, "a", 0.0, 1.0, 1.0)
    for index, (fields, _) in enumerate(wrong, 3):
        tables.rollout("a", index, 1.0, **fields)
    result = tables.curate(method, max_tokens=8)
    assert {reason: result.filtered[reason] for _, reason in wrong} == Counter(reason for _, reason in wrong)
    assert {f"a-{index}" for index in range(3, 10)}.isdisjoint(tables.kept(result))


def test_held_out_items_are_filtered(tables):
    tables.item("a", "about a?")
    tables.item("b", "of b?", split="heldout")
    tables.item("c", "of c?", identity="shared")
    tables.item("d", "of d?", identity="shared", split="heldout")
    for item in "abc":
        group(tables, item, 0.0, 1.0)
    group(tables, "e", 0.0, 1.0, split="heldout")
    result = tables.curate()
    assert result.filtered == {"held-out item": 6}
    assert tables.kept(result) == ["a-0", "a-1"]


def test_held_out_questions_are_filtered_in_any_user_message(tables, say):
    tables.item("h1", "What is 3 + 4?", split="heldout")
    tables.item("h2", "Caf\u00e9 open?", split="heldout")
    others = ["What is 3 - 4?", "What is 3 + 4? Thanks"]
    theirs = ["What is 3 + 4?", "  what IS\n3 + 4? ", "Caf\u00e9 open?", "Cafe\u0301 open?"]  # the same letters, composed otherwise
    for index, asked in enumerate([*others, *theirs]):
        talk = [say("user", "hello"), say("assistant", "hi"), say("user", asked), say("assistant", f"{index}")]
        tables.rollout("a", index, float(index == 1), messages=talk)
    result = tables.curate()
    assert result.filtered == {"held-out question": 4}
    assert tables.kept(result) == ["a-0", "a-1"]


def test_an_answer_with_a_held_out_question_is_kept(tables):
    tables.item("h", "answer 1", split="heldout")
    group(tables, "a", 0.0, 1.0)
    assert tables.curate().filtered == {}


def test_for_imitation_equal_conversations_count_once(tables, say):
    def talk(*call):
        return [say("user", "q"), say("assistant", "", call), say("tool", "3"), say("assistant", "three")]

    tables.rollout("a", 0, 1.0, messages=talk("id0", "stock", "{1}"))
    tables.rollout("a", 1, 1.0, messages=talk("id1", "stock", "{1}"))  # another call id: the same conversation
    tables.rollout("a", 2, 1.0, messages=talk("id0", "stock", "{2}"))  # another argument: another conversation
    tables.rollout("a", 3, 1.0, messages=talk("id0", "price", "{1}"))
    tables.rollout("a", 4, 1.0, messages=[say("user", "q"), say("assistant", ""), say("tool", "3"), say("assistant", "three")])
    tables.rollout("b", 0, 1.0, messages=talk("id9", "stock", "{1}"))
    result = tables.curate("sft")
    assert result.filtered == {"duplicate": 2}
    assert tables.kept(result) == ["a-0", "a-2", "a-3", "a-4"]


def test_for_imitation_copies_that_teach_other_turns_all_count(tables, say):
    """Two turns of one conversation: each is imitated once, by the best-scored row that teaches it."""
    talk = [say("user", "q1"), say("assistant", "a1"), say("user", "q2"), say("assistant", "a2")]
    masks = [("main", "side"), ("side", "main"), ("side", "main"), ("main", "main")]
    for index, kinds in enumerate(masks):
        spans = zip(((2, 3), (4, 5)), kinds, strict=True)
        turns = [{"start": start, "end": end, "kind": kind, "finish_reason": "stop"} for (start, end), kind in spans]
        tables.rollout("a", index, 1.0, messages=talk, turns=turns, source="imported")
    result = tables.curate("sft")
    assert (result.filtered, tables.kept(result)) == ({"duplicate": 2}, ["a-0", "a-1"])


def test_a_missing_content_is_a_content_of_its_own(tables, say):
    for index, middle in enumerate([None, ""]):
        tables.rollout("a", index, 1.0, messages=[say("user", "q"), say("assistant", middle), say("assistant", "x")])
    tables.rollout("a", 2, 1.0, messages=[say("user", "q"), say("assistant", "x")])
    assert tables.curate("sft").filtered == {}


def test_the_best_scored_copy_stays(tables):
    for index, reward in enumerate([0.5, 1.0, 1.0]):
        tables.rollout("a", index, reward, text="same")
    result = tables.curate("sft")
    assert result.filtered == {"no success": 1, "duplicate": 1}
    assert tables.kept(result) == ["a-1"]


def test_ratio_methods_keep_independent_draws_of_equal_tokens(tables):
    group(tables, "a", 1.0, 1.0, text="same")
    tables.rollout("a", 2, 0.0, text="other")
    result = tables.curate()
    assert result.filtered == {}
    assert result.rows_out == 3


def test_for_a_ratio_one_draw_stored_twice_counts_once(tables):
    group(tables, "a", 0.0, 1.0)
    tables.rollout("a", 1, 1.0, trajectory_id="again")
    tables.rollout("a", 1, 1.0, trajectory_id="by another policy", policy_version="p1", group_id="a/p1")
    result = tables.curate()
    assert result.filtered == {"duplicate": 1, "group of one": 1}
    assert tables.kept(result) == ["a-0", "a-1"]


def test_groups_without_signal_are_filtered(tables):
    group(tables, "a", 0.0, 1.0)
    group(tables, "b", 1.0, 1.0, 1.0)
    group(tables, "c", 0.0)
    result = tables.curate()
    assert result.filtered == {"zero-variance group": 3, "group of one": 1}
    assert result.details["groups"] == 1


def test_kept_groups_without_signal_have_no_advantage(tables):
    group(tables, "b", 1.0, 1.0)
    group(tables, "c", 1.0)
    for setting in ("group", "none", "batch"):
        result = tables.curate(drop_zero_variance_groups=False, advantage=setting)
        assert advantages(tables, result) == [0.0, 0.0, 0.0]


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        # population deviation of 0, 1, 0, 1 is 0.5; 0.5 / 0.5001 = 0.99980
        ("group", [-0.99980, 0.99980, -0.99980, 0.99980, -0.99960, 0.99960]),
        ("none", [-0.5, 0.5, -0.5, 0.5, -0.25, 0.25]),
        # of 0, 1, 0, 1, 0, 0.5 the mean is 5/12 and the deviation sqrt(9/24 - 25/144) = 0.448764; 0.5 / 0.448864 = 1.11392
        ("batch", [-1.11392, 1.11392, -1.11392, 1.11392, -0.55696, 0.55696]),
    ],
)
def test_advantages_are_centred_in_the_group_and_scaled_as_set(setting, expected, tables):
    group(tables, "a", 0.0, 1.0, 0.0, 1.0)
    group(tables, "b", 0.0, 0.5)
    assert advantages(tables, tables.curate(advantage=setting)) == pytest.approx(expected, abs=2e-5)


def test_the_oracle_of_four_rewards(tables):
    group(tables, "a", 0.0, 1.0, 0.0, 1.0)
    assert advantages(tables, tables.curate()) == pytest.approx([-0.99980, 0.99980, -0.99980, 0.99980], abs=5e-6)


def test_imitation_takes_successes_with_advantage_one(tables):
    group(tables, "a", 0.0, 1.0, 0.5)
    tables.rollout("b", 0, None)
    tables.score("b-0", 1.0, success=None)
    result = tables.curate("sft")
    assert result.filtered == {"no success": 3}
    assert tables.kept(result) == ["a-1"]
    assert advantages(tables, result) == [1.0]


def test_no_step_asks_for_a_method_on_pairs_by_name():
    """So that another one is curated as dpo is: correction pairs of any other name were left out without a word."""
    on_pairs = [name for name, method in METHODS.items() if method.pairs]
    assert on_pairs
    assert not [file.name for file in SQL.iterdir() for name in on_pairs if f"'{name}'" in file.read_text()]
