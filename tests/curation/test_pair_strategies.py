"""How preference pairs are chosen: by length, by policy, turn by turn, and from corrections."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from clawpipe.core.contracts.validate import validate

# rewards of at least 0.5 are successes; lengths are of the reply
TEXTBOOK = {
    "g1": {"a": (1.0, 100), "b": (0.8, 400), "c": (0.5, 110), "d": (0.2, 95), "e": (0.0, 420)},
    "g2": {"f": (0.5, 10), "h": (0.5, 12)},
    "g3": {"i": (0.9, 50), "j": (0.85, 50)},
}


def reply(tables, item, index, name, reward, length, **fields):
    tokens = [1, 2, 3, *([10 + index] * length)]
    streams = {"token_ids": tokens, "loss_mask": [False] * 3 + [True] * length, "logprobs": [0.0] * len(tokens)}
    turns = [{"start": 3, "end": 3 + length, "kind": "main", "finish_reason": "stop"}]
    tables.rollout(item, index, None, text=f"says {name}", trajectory_id=name, turns=turns, **streams | fields)
    tables.score(name, reward, success=reward >= 0.5)


def textbook(tables):
    for item, rows in TEXTBOOK.items():
        for index, (name, (reward, length)) in enumerate(rows.items()):
            reply(tables, item, index, name, reward, length)


def sides(rows):
    return {f"{row['chosen_id']}-{row['rejected_id']}" for row in rows}


def cut(result, step):
    return {entry["step"]: entry["filtered"] for entry in result.details["steps"]}[step]


@pytest.mark.parametrize(
    ("pairs", "expected"),
    [
        ({"strategy": "all-margin"}, "a-d a-e b-d b-e c-d c-e"),
        ({"strategy": "best-worst"}, "a-e"),
        ({"strategy": "length-balanced"}, "a-d b-e c-d"),
        ({"strategy": "length-balanced", "length_ratio": 1.1}, "a-d b-e"),  # c to d is 1.158
        ({"strategy": "length-balanced", "length_ratio": 4.5}, "a-d b-e c-d"),  # the nearest all the same
        ({"strategy": "all-margin", "length_ratio": 1.25}, "a-d b-e c-d"),
        ({"strategy": "best-worst", "length_ratio": 1.25}, "a-d"),  # the best of those that may be compared
        ({"strategy": "all-margin", "length_ratio": 4.3}, "a-d a-e b-d b-e c-d c-e"),
        ({"strategy": "all-margin", "length_ratio": 4.0}, "a-d b-e c-d c-e"),
    ],
)
def test_the_textbook_example_by_every_strategy(pairs, expected, tables):
    textbook(tables)
    result = tables.curate("dpo", pairs={"margin": 0.3, "per_group": 9, **pairs})
    assert sides(tables.rows(result)) == set(expected.split())
    assert {row["strategy"] for row in tables.rows(result)} == {pairs["strategy"]}
    assert result.rows_in == result.details["paired"] + sum(result.filtered.values())


def test_only_what_the_newest_policy_said_is_paired(tables):
    for version in ("p0", "p1"):
        for index in range(2):
            fields = {"policy_version": version, "group_id": f"a/{version}"}
            reply(tables, "a", index, f"{version}-{index}", float(index), 2, **fields)
    result = tables.curate("dpo", versions=["p1", "p0"], pairs={"strategy": "on-policy"})
    assert sides(tables.rows(result)) == {"p1-1-p1-0"}
    assert cut(result, "60_pairs_made") == {"policy not the newest": 1}
    assert result.filtered == {"in no pair": 2}


def tree(tables, say):
    """Two turns each; the first is x or y. A tool's result stands between."""
    paths = {"a": "x p", "b": "x q", "c": "y r", "d": "x p2", "e": "y s"}
    tokens = {word: 20 + number for number, word in enumerate(["x", "y", "p", "q", "r", "p2", "s"])}
    turns = [{"start": k, "end": k + 1, "kind": "main", "finish_reason": "stop"} for k in (3, 5)]
    for index, (name, (reward, _)) in enumerate(TEXTBOOK["g1"].items()):
        first, second = paths[name].split()
        tables.rollout(
            "g1",
            index,
            None,
            trajectory_id=name,
            messages=[say("user", "q"), say("assistant", first), say("tool", "t"), say("assistant", second)],
            token_ids=[1, 2, 3, tokens[first], 9, tokens[second]],
            loss_mask=[False, False, False, True, False, True],
            logprobs=[0.0] * 6,
            turns=turns,
        )
        tables.score(name, reward, success=reward >= 0.5)


def test_branches_of_a_tree_are_paired_turn_by_turn(tables, say):
    tree(tables, say)
    result = tables.curate("dpo", pairs={"strategy": "same-prefix", "margin": 0.3, "per_group": 9})
    rows = tables.rows(result)
    # after the prompt x is worth (1 + .8 + .2) / 3 and y (.5 + 0) / 2; after x and after y the rewards themselves
    told = {f"{row['chosen_id']}-{row['rejected_id']}": (row["prompt_tokens"], row["margin"]) for row in rows}
    expected = {"a-e": (3, 2 / 3 - 0.25), "a-d": (5, 0.8), "b-d": (5, 0.6), "c-e": (5, 0.5)}
    assert told == {pair: (place, pytest.approx(margin)) for pair, (place, margin) in expected.items()}
    first = next(row for row in rows if row["prompt_tokens"] == 3)
    assert (first["chosen_token_ids"], first["chosen_loss_mask"]) == ([1, 2, 3, 20], [False, False, False, True])
    assert (first["rejected_token_ids"], first["rejected_loss_mask"]) == ([1, 2, 3, 21], [False, False, False, True])
    assert (first["prompt"], first["chosen"], first["rejected"]) == (
        [say("user", "q")],
        [say("assistant", "x")],
        [say("assistant", "y")],
    )
    later = next(row for row in rows if row["chosen_id"] == "c")
    assert later["chosen_token_ids"] == [1, 2, 3, 21, 9, 24]
    assert later["chosen_loss_mask"] == [False] * 5 + [True]
    assert later["prompt"] == [say("user", "q"), say("assistant", "y"), say("tool", "t")]
    assert later["rejected"] == [say("assistant", "s")]
    assert validate(tables.store, result.output, "preference_pairs").output == result.output


def test_what_a_tool_said_otherwise_is_no_common_prefix(tables, say):
    tree(tables, say)
    tables.trajectories[0]["token_ids"][4] = 8
    result = tables.curate("dpo", pairs={"strategy": "same-prefix", "margin": 0.3, "per_group": 9})
    assert sides(tables.rows(result)) == {"a-e", "b-d", "c-e"}


SAID = ["user q", "assistant wrong", "user no, it is", "assistant right"]


def session(tables, say, lines=SAID, scores=(-1.0, 1.0), kinds=("main", "main"), origin="user", name="talk", **fields):
    """One session with a prompt of two tokens, turns of one and two, and a token of the user's between."""
    messages = [say(*line.split(" ", 1)) for line in lines]
    spans = [(2, 3), (4, 6)]
    tables.rollout(
        "a",
        0,
        None,
        trajectory_id=name,
        messages=messages,
        token_ids=[1, 2, 10, 5, 11, 12],
        loss_mask=[False, False, True, False, True, True],
        logprobs=[0.0] * 6,
        prompt_tokens=2,
        turns=[{"start": s, "end": e, "kind": kind, "finish_reason": "stop"} for (s, e), kind in zip(spans, kinds, strict=True)],
        **fields,
    )
    for turn, value in enumerate(scores):
        if value is not None:
            tables.score(name, value, turn=turn, origin=origin, scorer=origin, success=None)


def test_a_corrected_reply_is_paired_with_the_reply_after_it(tables, say):
    session(tables, say)
    result = tables.curate("dpo", pairs={"corrections": True})
    [row] = tables.rows(result)
    del row["pair_id"]
    assert row == {
        "item_id": "a",
        "group_id": "a/p0",
        "strategy": "correction",
        "margin": 2.0,
        "chosen_id": "talk",
        "rejected_id": "talk#0",
        "policy_version": "p0",
        "renderer_digest": "r0",
        "prompt_tokens": 2,
        "chosen_token_ids": [1, 2, 11, 12],
        "chosen_loss_mask": [False, False, True, True],
        "rejected_token_ids": [1, 2, 10],
        "rejected_loss_mask": [False, False, True],
        "temperature": 0.8,
        "weight": 1.0,
        "session_id": None,
        **dict.fromkeys(("user_id", "tools", "origin", "extra")),
        "tokens": "recorded",
        "prompt": [say("user", "q")],
        "chosen": [say("assistant", "right")],
        "rejected": [say("assistant", "wrong")],
    }
    assert result.details["paired"] == result.rows_in == 1
    assert validate(tables.store, result.output, "preference_pairs").output == result.output


def test_what_is_no_correction(tables, say):
    others = [
        {"scores": (0.0, 1.0)},
        {"scores": (-1.0, 0.0)},
        {"scores": (-1.0, None)},
        {"scores": (1.0, -1.0)},
        {"lines": ["user q", "assistant wrong", "tool 5", "assistant right"]},
        {"lines": ["user q", "assistant wrong", "user no", "tool 5", "assistant right"]},
        {"lines": ["user q", "assistant wrong", "assistant right"]},
        {"kinds": ("side", "main")},
        {"kinds": ("main", "side")},
    ]
    for number, fields in enumerate(others):
        session(tables, say, name=f"talk{number}", **fields)
    result = tables.curate("dpo", pairs={"corrections": True})
    assert (result.rows_out, result.filtered) == (0, {"no verifier score": len(others)})


@pytest.mark.parametrize(
    ("fields", "pairs", "reason"),
    [
        ({}, {"margin": 2.1}, "margin too small"),
        ({}, {"length_ratio": 1.5}, "lengths too different"),
        ({"lines": [*SAID[:3], "assistant WRONG "]}, {}, "sides nearly identical"),
    ],
)
def test_the_guards_hold_for_corrections(fields, pairs, reason, tables, say):
    session(tables, say, **fields)
    result = tables.curate("dpo", pairs={"corrections": True, **pairs})
    assert cut(result, "60_pairs_made") == {reason: 1}
    assert result.filtered == {"in no pair": 1}


def test_corrections_in_several_messages_or_by_a_judge(tables, say):
    session(tables, say, lines=["user q", "assistant wrong", "user no", "user rather", "assistant right"], origin="judge")
    assert tables.curate("dpo", pairs={"corrections": True}).rows_out == 1


def test_corrections_need_their_setting(tables, say):
    session(tables, say)
    assert tables.curate("dpo").filtered == {"no verifier score": 1}


def test_corrections_stand_beside_pairs_of_their_group(tables, say):
    session(tables, say)
    tables.score("talk", 0.0)
    for index in range(2):
        tables.rollout("a", index + 1, float(index))
    result = tables.curate("dpo", pairs={"corrections": True, "strategy": "best-worst"})
    # the session's prompt is another than that of the rollouts
    assert sides(tables.rows(result)) == {"talk-talk#0", "a-2-a-1"}
    assert cut(result, "60_pairs_made") == {"prompts differ": 1}


TREES = st.lists(st.tuples(st.sampled_from("xy"), st.sampled_from("pq"), st.sampled_from([0.0, 0.25, 1.0])), max_size=6)


@given(rows=TREES, margin=st.sampled_from([0.0, 0.3]))
@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_forks_are_those_of_plain_python(rows, margin, tables, say):
    tables.trajectories, tables.scores = [], []
    words = dict(zip("xypq", range(20, 24), strict=True))
    turns = [{"start": k, "end": k + 1, "kind": "main", "finish_reason": "stop"} for k in (3, 5)]
    for index, (first, second, reward) in enumerate(rows):
        said = [say("user", "q"), say("assistant", first), say("user", "t"), say("assistant", f"{second} {index}")]
        streams = {"token_ids": [1, 2, 3, words[first], 9, words[second]], "logprobs": [0.0] * 6, "turns": turns}
        tables.rollout("a", index, reward, messages=said, loss_mask=[False, False, False, True, False, True], **streams)
    result = tables.curate("dpo", pairs={"strategy": "same-prefix", "margin": margin, "per_group": 99})
    told = sorted((row["prompt_tokens"], row["margin"]) for row in tables.rows(result))
    kept = rows if {row[2] for row in rows} & {1.0} and {row[2] for row in rows} - {1.0} else []
    nodes = [(3, kept, 0), *((5, [row for row in kept if row[0] == first], 1) for first in "xy")]
    forks = [(place, margin) for place, below, turn in nodes for margin in gaps(below, turn)]
    assert told == [(place, pytest.approx(gap)) for place, gap in sorted(forks) if round(gap, 9) >= margin]
    assert result.rows_in == result.details["paired"] + sum(result.filtered.values())


def gaps(rows, turn):
    """Differences in value of two actions, the better of which led to a success once and the worse to a failure."""
    rewards = {action: [row[2] for row in rows if row[turn] == action] for action in {row[turn] for row in rows}}
    values = {action: sum(below) / len(below) for action, below in rewards.items()}
    return [
        values[a] - values[b]
        for a in values
        for b in values
        if values[a] > values[b] and 1.0 in rewards[a] and min(rewards[b]) < 1.0
    ]
