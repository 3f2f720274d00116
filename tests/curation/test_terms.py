"""grpo, opd and combine: a row stays if a term with weight has something to say about it; and credit turn by turn."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

HINT = {"hints": ["Call stock."]}
SHOWN = {"role": "assistant", "content": "5", "tool_calls": [], "tool_call_id": None, "name": None}
# two main turns of two tokens and one, after a prompt of two tokens; a tool result between them; a side turn at the end
TURNS = [
    {"start": 2, "end": 4, "kind": "main", "finish_reason": "stop"},
    {"start": 5, "end": 6, "kind": "main", "finish_reason": "stop"},
    {"start": 7, "end": 8, "kind": "side", "finish_reason": "stop"},
]
MASK = [False, False, True, True, False, True, False, True]


def talk(tables, item, index, *turn_scores, reward=None, **fields):
    """A trajectory of TURNS; `turn_scores` in order, None for none."""
    streams = {"token_ids": list(range(8)), "loss_mask": MASK, "logprobs": [-0.5 * m for m in MASK], "prompt_tokens": 2}
    tables.rollout(item, index, reward, turns=TURNS, **streams | fields)
    for turn, value in enumerate(turn_scores):
        if value is not None:
            judge(tables, f"{item}-{index}", turn, value)


def judge(tables, name, turn, value, scorer="prm", origin="judge"):
    tables.score(name, value, turn=turn, scorer=scorer, origin=origin, success=None)


def streams(tables, result):
    return {row["trajectory_id"]: (row["loss_mask"], row["advantages"]) for row in tables.rows(result)}


def masked(*advantages):
    """(mask, advantages) where tokens are given by their advantage, None where nothing is trained."""
    return [a is not None for a in advantages], [a or 0.0 for a in advantages]


def four_cases(tables):
    """Group a varies, group b does not; the first rollout of each has a hint."""
    for item, rewards in (("a", (0.0, 1.0)), ("b", (0.5, 0.5))):
        for index, reward in enumerate(rewards):
            tables.rollout(item, index, None)
            tables.score(f"{item}-{index}", reward, **(HINT if index == 0 else {}))


def test_the_four_cases_of_hint_and_score(tables):
    four_cases(tables)
    result = tables.curate("combine", advantage="none")
    told = {row["trajectory_id"]: row["advantages"][3:] for row in tables.rows(result)}
    assert told == {"a-0": [-0.5, -0.5], "a-1": [0.5, 0.5], "b-0": [0.0, 0.0]}
    assert result.filtered == {"zero-variance group, no hint": 1}


def test_opd_keeps_what_has_a_hint_and_has_no_advantages(tables):
    four_cases(tables)
    result = tables.curate("opd")
    assert tables.kept(result) == ["a-0", "b-0"]
    assert {tuple(row["advantages"]) for row in tables.rows(result)} == {(0.0,) * 5}
    assert result.filtered == {"no hint": 2}


def test_grpo_does_not_look_at_hints(tables):
    four_cases(tables)
    result = tables.curate("grpo")
    assert tables.kept(result) == ["a-0", "a-1"]
    assert result.filtered == {"zero-variance group": 2}


@given(
    rewards=st.lists(st.lists(st.sampled_from([None, 0.0, 0.5, 1.0]), max_size=3), max_size=4),
    hinted=st.lists(st.booleans(), min_size=12, max_size=12),
    weight=st.floats(0.01, 10),
    config=st.fixed_dictionaries({"advantage": st.sampled_from(["group", "batch"]), "credit": st.sampled_from(["group", "turn"])}),
)
@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_with_a_weight_of_0_combine_is_the_other_method(rewards, hinted, weight, config, tables):
    tables.trajectories, tables.scores = [], []
    for item, group in enumerate(rewards):
        for index, reward in enumerate(group):
            tables.rollout(f"i{item}", index, None)
            judge(tables, f"i{item}-{index}", 0, index - 1.0)
            if reward is not None:
                tables.score(f"i{item}-{index}", reward, **(HINT if hinted[3 * item + index] else {}))
    for method, weights in (("grpo", (weight, 0.0)), ("opd", (0.0, weight))):
        alone, combined = tables.curate(method, **config), tables.curate("combine", weights=weights, **config)
        assert combined.output.digest == alone.output.digest
        assert combined.filtered == alone.filtered


def test_the_batch_scale_uses_rows_with_a_reward_only(tables):
    four_cases(tables)
    combined = {row["trajectory_id"]: row["advantages"] for row in tables.rows(tables.curate("combine", advantage="batch"))}
    for row in tables.rows(tables.curate("grpo", advantage="batch")):
        assert combined[row["trajectory_id"]] == row["advantages"]


def test_a_row_has_a_hint_in_the_form_that_the_teacher_is_shown(tables):
    told = [
        ({"hints": ["Call stock."]}, {"text"}),
        ({"hints": []}, set()),
        ({"hints": [" ", "\t\u00a0"]}, set()),
        ({"hints": [" ", "so"]}, {"text"}),
        ({"demonstration": [SHOWN]}, {"demonstration"}),
        ({"demonstration": []}, set()),
        (HINT | {"turn": 0}, {"text"}),  # that of a turn is for the turn
        ({"demonstration": [SHOWN], "turn": 0}, set()),
        (HINT | {"origin": "judge", "scorer": "prm"}, {"text"}),
    ]
    for index, (fields, _) in enumerate(told):
        tables.rollout("a", index, None)
        tables.score(f"a-{index}", 1.0, **fields)
    for form in ("text", "demonstration"):
        hinted = [f"a-{index}" for index, (_, forms) in enumerate(told) if form in forms]
        assert tables.kept(tables.curate("opd", hint=form)) == hinted


def test_a_hint_is_enough_for_opd_and_a_score_is_not_needed(tables):
    tables.rollout("a", 0, None)
    tables.score("a-0", 1.0, origin="judge", scorer="prm", **HINT)
    assert tables.kept(tables.curate("opd")) == ["a-0"]
    assert tables.curate("combine", weights=(1.0, 1.0)).rows_out == 1
    assert tables.curate("grpo").filtered == {"no verifier score": 1}


def test_a_turns_own_score_is_its_advantage(tables):
    talk(tables, "a", 0, 1.0, -1.0, 1.0)  # the side turn's score does not count
    talk(tables, "a", 1, 0.0, 0.5)
    talk(tables, "b", 0, None, -0.25)
    talk(tables, "b", 1, 0.0, 0.0)
    talk(tables, "b", 2, None, None, 1.0)
    result = tables.curate(credit="turn")
    assert streams(tables, result) == {
        "a-0": masked(None, None, 1.0, 1.0, None, -1.0, None, None),
        "a-1": masked(None, None, None, None, None, 0.5, None, None),
        "b-0": masked(None, None, None, None, None, -0.25, None, None),
    }
    assert [row["logprobs"][3] for row in tables.rows(result)] == [-0.5, 0.0, 0.0]
    assert [row["group_id"] for row in tables.rows(result)] == ["a-0", "a-1", "b-0"]  # optimizer steps may split those of one item
    assert result.filtered == {"only neutral turns": 1, "no turn score": 1}
    assert result.details["trained_tokens"] == 3 + 1 + 1


def test_turn_advantages_ignore_trajectory_score_and_group(tables):
    talk(tables, "a", 0, 1.0, reward=0.0)
    talk(tables, "a", 1, reward=1.0)
    result = tables.curate(credit="turn", drop_zero_variance_groups=False)
    assert tables.kept(result) == ["a-0"]
    assert result.filtered == {"no turn score": 1}


def test_the_turn_score_nearest_to_a_person_counts(tables):
    talk(tables, "a", 0)
    nearer = [("prm", "judge"), ("rule", "verifier"), ("b mine", "custom"), ("a mine", "custom"), ("me", "user")]
    for value, (scorer, origin) in enumerate(nearer, 1):
        judge(tables, "a-0", 0, float(value), scorer, origin)
        [(_, advantages)] = streams(tables, tables.curate(credit="turn")).values()
        assert advantages[2] == value


def test_the_running_mean_of_turns_follows_dataset_order(tables):
    # trained scores in order: 1, -1 | 1 | 1; their baselines with decay 0.5: 0, 0.5 | -0.25 | 0.375; neutral turns do not count
    talk(tables, "z", 0, 1.0, -1.0)
    talk(tables, "a", 1, 0.0, 1.0)
    talk(tables, "a", 0, 1.0, None)
    assert streams(tables, tables.curate(credit="turn", turn_baseline=0.5)) == {
        "z-0": masked(None, None, 1.0, 1.0, None, -1.5, None, None),
        "a-1": masked(None, None, None, None, None, 1.25, None, None),
        "a-0": masked(None, None, 0.625, 0.625, None, None, None, None),
    }


def test_negative_turns_count_for_less(tables):
    # weighted scores in order: 1, -0.5 | -0.25, 1; their baselines with decay 0.5: 0, 0.5 | 0, -0.125
    talk(tables, "a", 0, 1.0, -1.0)
    talk(tables, "a", 1, -0.5, 1.0)
    assert streams(tables, tables.curate(credit="turn", negative_weight=0.5)) == {
        "a-0": masked(None, None, 1.0, 1.0, None, -0.5, None, None),
        "a-1": masked(None, None, -0.25, -0.25, None, 1.0, None, None),
    }
    assert streams(tables, tables.curate(credit="turn", negative_weight=0.5, turn_baseline=0.5)) == {
        "a-0": masked(None, None, 1.0, 1.0, None, -1.0, None, None),
        "a-1": masked(None, None, -0.25, -0.25, None, 1.125, None, None),
    }


def test_a_user_who_praises_all_counts_for_less(tables):
    # four scores of each: eva praises one, bob all. Of all eight 5/8 are praise, so bob's share is (4 + 4 * 5/8) / 8 = 13/16,
    # and his praise counts 5/8 / (13/16) = 10/13; eva's share is (1 + 4 * 5/8) / 8 = 7/16, and her blame counts 3/8 / (9/16) = 2/3.
    for index, (user, *scores) in enumerate([("eva", 1.0, -1.0), ("eva", -1.0, -1.0), ("bob", 1.0, 1.0), ("bob", 1.0, 0.5)]):
        talk(tables, "a", index, *scores, user_id=user)
    talk(tables, "b", 0, 1.0, 0.0)
    found = streams(tables, tables.curate(credit="turn", level_users=True))
    credits = {name: [credit for taught, credit in zip(*row, strict=True) if taught] for name, row in found.items()}
    assert credits["a-0"] == pytest.approx([1, 1, -2 / 3])
    assert credits["a-1"] == pytest.approx([-2 / 3] * 3)
    assert credits["a-2"] == pytest.approx([10 / 13] * 3)
    assert credits["a-3"] == pytest.approx([10 / 13, 10 / 13, 5 / 13])
    assert credits["b-0"] == [1, 1]


def test_neutral_turns_with_hints_stay_with_advantage_zero(tables):
    talk(tables, "a", 0, 0.0, 1.0)
    tables.score("a-0", 0.0, **HINT)
    talk(tables, "a", 1, 0.0, 1.0)
    assert streams(tables, tables.curate("combine", credit="turn")) == {
        "a-0": masked(None, None, 0.0, 0.0, None, 1.0, None, None),
        "a-1": masked(None, None, None, None, None, 1.0, None, None),
    }


@pytest.mark.parametrize("config", [{"credit": "turn", "turn_baseline": 0.9}, {"advantage": "batch", "baseline": "leave-one-out"}])
def test_the_bytes_are_the_same_on_every_number_of_threads(config, tables):
    for item in range(150):
        for index in range(4):
            reward = (item * 7 + index * 3) % 10 / 10 + index / 3
            talk(tables, f"i{item:03d}", index, reward - 0.7, 0.1 * index, reward=reward)
    assert len({tables.curate("combine", threads=threads, **config).output.digest for threads in (1, 2, 4, 4)}) == 1


def test_a_hint_of_a_turn_is_for_that_turn(tables):
    """Hints of turns were dropped, so that nothing could be learnt from a judge's."""
    talk(tables, "a", 0, None, 0.0)
    tables.scores[-1] |= HINT
    talk(tables, "a", 1, 0.0, None)
    result = tables.curate("opd")
    assert streams(tables, result) == {"a-0": masked(None, None, None, None, None, 0, None, None)}
    assert tables.rows(result)[0]["turns"] == [{"turn": 1, "start": 5, "end": 6}]
    assert result.filtered == {"no hint": 1}


def test_combine_keeps_turns_that_either_term_teaches(tables):
    talk(tables, "a", 0, None, 0.0)
    tables.scores[-1] |= HINT
    talk(tables, "a", 1, reward=1.0)
    talk(tables, "a", 2, reward=0.0)
    told = streams(tables, tables.curate("combine", advantage="none"))
    assert told["a-0"] == masked(None, None, None, None, None, 0, None, None)  # nobody scored it: the hint alone teaches
    assert told["a-1"] == masked(None, None, 0.5, 0.5, None, 0.5, None, None)


def test_hints_of_side_turns_or_in_another_form_do_not_count(tables):
    talk(tables, "a", 0, None, None, 0.0)
    tables.scores[-1] |= HINT
    assert tables.curate("opd").filtered == {"no hint": 1}
    tables.scores[-1] |= {"turn": 0}
    assert tables.curate("opd", hint="demonstration").filtered == {"no hint": 1}


def test_imported_turn_numbers_include_those_before_sampling(tables):
    """A judge's record names a reply of the whole conversation; the first reply here is history, which nobody sampled."""
    said = [("user", "q"), ("assistant", "old"), ("user", "more"), ("assistant", "new")]
    messages = [{"role": role, "content": text, "tool_calls": [], "tool_call_id": None, "name": None} for role, text in said]
    tables.rollout("a", 0, None, source="imported", messages=messages)
    tables.score("a-0", 0.0, turn=1, scorer="judge", origin="judge", success=None, **HINT)
    [row] = tables.rows(tables.curate("opd"))
    assert row["turns"] == [{"turn": 1, "start": 3, "end": 5}]
    tables.scores[0]["turn"] = 0
    assert tables.curate("opd").filtered == {"no hint": 1}


def standardized(scores: list[float], score: float) -> float:
    """The advantage of one step's score among the scores of its group at that step, by hand."""
    mean = sum(scores) / len(scores)
    return (score - mean) / ((sum((one - mean) ** 2 for one in scores) / len(scores)) ** 0.5 + 1e-4)


def test_step_scores_are_compared_within_the_same_step(tables):
    """b's second step was taken once, and c's scores are alike: both are silent."""
    talk(tables, "a", 0, 1.0, -1.0)
    talk(tables, "a", 1, 0.0, 0.5)
    talk(tables, "a", 2, -1.0)
    talk(tables, "b", 0, 1.0, 1.0)
    talk(tables, "b", 1, 0.0)
    talk(tables, "c", 0, 1.0)
    talk(tables, "c", 1, 1.0)
    talk(tables, "c", 2)
    result = tables.curate(credit="step")
    first, second = [1.0, 0.0, -1.0], [-1.0, 0.5]
    wanted = {
        "a-0": (standardized(first, 1.0), standardized(second, -1.0)),
        "a-1": (standardized(first, 0.0), standardized(second, 0.5)),
        "a-2": (standardized(first, -1.0), None),
        "b-0": (standardized([1.0, 0.0], 1.0), None),
        "b-1": (standardized([1.0, 0.0], 0.0), None),
    }
    found = streams(tables, result)
    assert found.keys() == wanted.keys()
    for name, (one, other) in wanted.items():
        mask, advantages = masked(None, None, one, one, None, other, None, None)
        assert found[name] == (mask, pytest.approx(advantages))
    assert result.filtered == {"no turn score": 1, "steps do not differ": 2}


def test_a_reward_is_the_outcome_and_the_mean_of_the_step_votes(tables):
    """0 + 0.5 * 1, 1 + 0.5 * -1 and, without votes, 1: the second half of the reward turns the order of the first two."""
    talk(tables, "a", 0, 1.0, 1.0, reward=0.0)
    talk(tables, "a", 1, -1.0, -1.0, reward=1.0)
    talk(tables, "a", 2, reward=1.0)
    rewards = {"a-0": 0.5, "a-1": 0.5, "a-2": 1.0}
    mean = sum(rewards.values()) / 3
    found = streams(tables, tables.curate(step_weight=0.5, advantage="none"))
    assert {name: advantages[2] for name, (_, advantages) in found.items()} == {
        name: pytest.approx(value - mean) for name, value in rewards.items()
    }


@pytest.mark.parametrize("method", ["grpo", "ppo", "kto"])
def test_filters_and_figures_see_the_outcome_not_the_steps(method, tables):
    """The lowest verifier score meant the outcome plus the steps."""
    talk(tables, "a", 0, 1.0, 1.0, reward=0.5)
    talk(tables, "a", 1, -1.0, -1.0, reward=1.0)
    result = tables.curate(method, step_weight=1.0, filters={"max_score": 0.9})
    assert result.filtered["score out of range"] == 1
    assert result.details["reward_mean"] == 0.75


def test_a_critic_counts_the_scores_of_turns_once(tables):
    """Each turn's own score was in the reward at the end again."""
    talk(tables, "a", 0, 1.0, -0.5, reward=1.0)
    plain, weighed = (tables.rows(tables.curate("ppo", step_weight=weight)) for weight in (0.0, 0.5))
    assert plain[0]["rewards"] == weighed[0]["rewards"] == [0, 0, 0, 1.0, 0, 0.5, 0, 0]


def test_rewards_that_differ_by_rounding_alone_are_equal(tables):
    """Such groups had advantages of -5.6e-13."""
    for item, (high, low) in {"a": (0.1 + 0.2, 0.3), "b": (1e6 * (0.1 + 0.2), 3e5), "c": (1.0, 1.0)}.items():
        tables.rollout(item, 0, high)
        tables.rollout(item, 1, low)
    assert tables.curate("grpo").filtered == {"zero-variance group": 6}
    kept = tables.rows(tables.curate("grpo", drop_zero_variance_groups=False))
    assert [row["advantages"] for row in kept] == [[0.0] * 5] * 6
    assert tables.curate("sft", imitate="chosen").filtered == {"zero-variance group": 6}


def test_steps_that_differ_by_rounding_alone_are_equal(tables):
    talk(tables, "a", 0, 0.1 + 0.2, 1.0)
    talk(tables, "a", 1, 0.3, 0.0)
    found = streams(tables, tables.curate(credit="step"))
    assert [mask[2:6] for mask, _ in found.values()] == [[False, False, False, True]] * 2
