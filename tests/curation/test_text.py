"""Imported text: what judges it, and what is imitated of it."""

IMPORTED = {
    "source": "imported",
    "policy_version": None,
    "renderer_digest": "r1",
    "tokens": "none",
    "token_ids": [],
    "loss_mask": [],
    "logprobs": [],
    "turns": [],
    "prompt_tokens": 0,
    "temperature": 0.0,
    "rendered_ids": [4, 5, 6, 7, 8, 9],
    "rendered_mask": [False, False, True, True, False, True],
}


def text(tables, index, **fields):
    tables.rollout("i", index, None, **IMPORTED | {"group_id": "i/", "trajectory_id": f"t{index}"} | fields)


def test_rendered_text_is_imitated(tables):
    text(tables, 0)
    tables.score("t0", 1.0, origin="custom", scorer="imported/hermes/custom")
    [row] = tables.rows(tables.curate("sft"))
    assert (row["token_ids"], row["loss_mask"]) == (IMPORTED["rendered_ids"], IMPORTED["rendered_mask"])
    assert row["advantages"] == [0.0, 0.0, 1.0, 1.0, 0.0, 1.0]
    assert (row["logprobs"], row["prompt_tokens"], row["policy_version"]) == ([0.0] * 6, 2, "text")


def test_text_feeds_no_ratio(tables):
    text(tables, 0)
    text(tables, 1)
    tables.score("t0", 1.0)
    tables.score("t1", 0.0)
    for method in ("grpo", "ppo"):
        assert tables.curate(method).filtered == {"tokens not recorded": 2}


def test_text_that_a_policy_has_scored_feeds_a_teacher(tables):
    scored = {"rendered_logprobs": [0.0, 0.0, -0.5, -0.25, 0.0, -1.0], "rendered_policy": "p9"}
    said = [say("user", "q"), say("assistant", "one"), say("user", "more"), say("assistant", "two")]
    text(tables, 0, messages=said, kinds=["main", "main"], **scored)
    text(tables, 1)
    for name in ("t0", "t1"):
        tables.score(name, 0.0, turn=1, origin="judge", scorer="judge", success=None, hints=["Say two."])
    result = tables.curate("opd")
    [row] = tables.rows(result)
    assert (row["loss_mask"], row["logprobs"]) == ([False] * 5 + [True], [0.0] * 5 + [-1.0])
    assert (row["turns"], row["temperature"], row["policy_version"]) == ([{"turn": 1, "start": 5, "end": 6}], 1.0, "p9")
    assert result.filtered == {"tokens not recorded": 1}


def say(role, content):
    return {"role": role, "content": content, "tool_calls": [], "tool_call_id": None, "name": None}


def test_two_attempts_as_text_are_a_pair_of_what_was_rendered(tables):
    """A side turn in between is context: its tokens are in no mask, and no reply is taken for another."""
    told = [say("user", "q"), say("assistant", "one"), say("user", "more"), say("assistant", "two")]
    end = [say("user", "last"), say("assistant", "three")]
    kinds = {"kinds": ["main", "side", "main"]}
    text(tables, 0, messages=[*told, *end], **kinds)
    ids = {"rendered_ids": [4, 5, 6, 3, 8, 2], "rendered_mask": [False, False, True, False, False, True]}
    text(tables, 1, messages=[*told[:3], say("assistant", "2"), *end[:1], say("assistant", "3")], **kinds, **ids)
    tables.score("t0", 1.0, origin="custom")
    tables.score("t1", 0.0, origin="custom")
    [pair] = tables.rows(tables.curate("dpo"))
    assert (pair["tokens"], pair["renderer_digest"], pair["temperature"], pair["policy_version"]) == ("rendered", "r1", 0.0, None)
    assert (pair["chosen_id"], pair["rejected_id"], pair["prompt_tokens"]) == ("t0", "t1", 2)
    assert (pair["chosen_token_ids"], pair["chosen_loss_mask"]) == (IMPORTED["rendered_ids"], IMPORTED["rendered_mask"])
    assert (pair["rejected_token_ids"], pair["rejected_loss_mask"]) == tuple(ids.values())
    assert pair["prompt"] == [say("user", "q")]
    assert [message["content"] for message in pair["chosen"]] == ["one", "more", "two", "last", "three"]


def test_attempts_after_other_words_are_no_pair(tables):
    text(tables, 0)
    text(tables, 1, rendered_ids=[4, 9, 6, 7, 8, 9])
    tables.score("t0", 1.0)
    tables.score("t1", 0.0)
    [step] = [step for step in tables.curate("dpo").details["steps"] if step["step"] == "60_pairs_made"]
    assert step["filtered"] == {"prompts differ": 1}


def test_text_that_was_not_rendered_is_filtered(tables):
    text(tables, 0, rendered_ids=None, rendered_mask=None)
    tables.score("t0", 1.0)
    assert tables.curate("sft").filtered == {"tokens not recorded": 1}


def test_long_text_and_text_without_a_main_turn_are_filtered(tables):
    text(tables, 0, rendered_ids=[1] * 9, rendered_mask=[False] * 8 + [True])
    text(tables, 1, rendered_mask=[False] * 6)
    tables.score("t0", 1.0)
    tables.score("t1", 1.0)
    assert tables.curate("sft", max_tokens=8).filtered == {"too long": 1, "nothing to train on": 1}


def test_of_several_scores_the_verifiers_counts_then_a_persons(tables):
    text(tables, 0)
    tables.score("t0", 1.0, origin="judge", scorer="a")
    tables.score("t0", 0.0, origin="user", scorer="b")
    assert tables.curate("sft").filtered == {"no success": 1}
    tables.score("t0", 1.0, origin="verifier", scorer="c")
    assert tables.kept(tables.curate("sft")) == ["t0"]


def test_rollouts_are_judged_by_a_verifier_alone(tables):
    tables.rollout("i", 0, None)
    tables.score("i-0", 1.0, origin="user", scorer="b")
    assert tables.curate("sft").filtered == {"no verifier score": 1}


def test_imitating_anything_leaves_out_what_failed(tables):
    for index, success in enumerate([None, True, False]):
        text(tables, index)
        if success is not None:
            tables.score(f"t{index}", float(success))
    tables.rollout("j", 0, None)
    assert sorted(tables.kept(tables.curate("sft", imitate="any"))) == ["j-0", "t0", "t1"]
    assert tables.curate("sft", imitate="any").filtered == {"no success": 1}
