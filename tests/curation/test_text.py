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


def text(world, index, **fields):
    world.rollout("i", index, None, **IMPORTED | {"group_id": "i/", "trajectory_id": f"t{index}"} | fields)


def test_rendered_text_is_imitated(world):
    text(world, 0)
    world.score("t0", 1.0, origin="custom", scorer="imported/hermes/custom")
    [row] = world.rows(world.curate("sft"))
    assert (row["token_ids"], row["loss_mask"]) == (IMPORTED["rendered_ids"], IMPORTED["rendered_mask"])
    assert row["advantages"] == [0.0, 0.0, 1.0, 1.0, 0.0, 1.0]
    assert (row["logprobs"], row["prompt_tokens"], row["policy_version"]) == ([0.0] * 6, 2, "text")


def test_text_feeds_nothing_but_imitation(world):
    text(world, 0)
    text(world, 1)
    world.score("t0", 1.0)
    world.score("t1", 0.0)
    for method in ("grpo", "ppo", "dpo"):
        assert world.curate(method).set_aside == {"tokens not recorded": 2}


def test_text_that_was_not_rendered_is_set_aside(world):
    text(world, 0, rendered_ids=None, rendered_mask=None)
    world.score("t0", 1.0)
    assert world.curate("sft").set_aside == {"tokens not recorded": 1}


def test_long_text_and_text_without_a_main_turn_are_set_aside(world):
    text(world, 0, rendered_ids=[1] * 9, rendered_mask=[False] * 8 + [True])
    text(world, 1, rendered_mask=[False] * 6)
    world.score("t0", 1.0)
    world.score("t1", 1.0)
    assert world.curate("sft", max_tokens=8).set_aside == {"too long": 1, "nothing to train on": 1}


def test_of_several_scores_the_verifiers_counts_then_a_persons(world):
    text(world, 0)
    world.score("t0", 1.0, origin="judge", scorer="a")
    world.score("t0", 0.0, origin="user", scorer="b")
    assert world.curate("sft").set_aside == {"no success": 1}
    world.score("t0", 1.0, origin="verifier", scorer="c")
    assert world.kept(world.curate("sft")) == ["t0"]


def test_rollouts_are_judged_by_a_verifier_alone(world):
    world.rollout("i", 0, None)
    world.score("i-0", 1.0, origin="user", scorer="b")
    assert world.curate("sft").set_aside == {"no verifier score": 1}


def test_imitating_anything_leaves_out_what_failed(world):
    for index, success in enumerate([None, True, False]):
        text(world, index)
        if success is not None:
            world.score(f"t{index}", float(success))
    world.rollout("j", 0, None)
    assert sorted(world.kept(world.curate("sft", imitate="any"))) == ["j-0", "t0", "t1"]
    assert world.curate("sft", imitate="any").set_aside == {"no success": 1}
