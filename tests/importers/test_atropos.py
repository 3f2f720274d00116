"""Groups of scored sequences: sentinels, overrides, and what does not fit together."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clawpipe.data.importers.formats.atropos import is_atropos, read_atropos, write_atropos
from clawpipe.data.importers.strict_json import RefusedError


def said(text):
    return [{"role": "user", "content": "q"}, {"role": "assistant", "content": text}]


GROUP = {
    "tokens": [[1, 2, 3, 4], [1, 2, 5, 6]],
    "masks": [[-100, -100, 3, 4], [-100, -100, 5, 6]],
    "scores": [1.0, -1.0],
    "inference_logprobs": [[1.0, 1.0, -0.2, -0.3], [1.0, 1.0, -1.2, -0.9]],
    "messages": [said("a"), said("b")],
    "advantages": None,
    "env_id": 0,
    "generation_params": {"id": "x"},
}


def test_a_group_becomes_its_sequences():
    first, second = read_atropos(GROUP)
    assert is_atropos(GROUP)
    assert first.group == second.group
    assert list(first.tokens.mask) == [False, False, True, True]
    assert list(first.tokens.logprobs) == [0, 0, -0.2, -0.3]
    assert second.judgements[0].value == -1.0
    assert second.messages[-1].content == "b"
    assert first.extra == {"env_id": 0, "generation_params": {"id": "x"}}


def test_a_group_that_is_written_is_read_back():
    rows = list(read_atropos(GROUP))
    written = write_atropos(rows)
    assert {name: written[name] for name in ("tokens", "masks", "scores", "inference_logprobs", "advantages")} == {
        name: GROUP[name] for name in ("tokens", "masks", "scores", "inference_logprobs", "advantages")
    }
    assert [row.messages for row in read_atropos(written)] == [row.messages for row in rows]


def test_overrides_and_sentinels_on_trained_tokens():
    row = GROUP | {"overrides": [{"set_advantage_to_zero": True}, {}], "advantages": [[1, 1, 1, 1], [0, 0, 2, 2]]}
    first, second = read_atropos(row)
    assert (list(first.tokens.advantages), list(second.tokens.advantages)) == ([0] * 4, [0, 0, 2, 2])
    assert (first.kinds, second.kinds) == (("side",), ("main",))
    unknown = GROUP | {"inference_logprobs": [[1.0, 1.0, 1.0, -0.3], GROUP["inference_logprobs"][1]]}
    assert [row.tokens.logprobs is None for row in read_atropos(unknown)] == [True, False]


def test_a_log_prob_that_was_rounded_above_0_is_one():
    """A +1e-7 took the log-probs of its whole sequence away."""
    rounded = GROUP | {"inference_logprobs": [[1.0, 1.0, 1e-7, -0.3], GROUP["inference_logprobs"][1]]}
    assert [list(row.tokens.logprobs or ()) for row in read_atropos(rounded)] == [[0, 0, 1e-7, -0.3], [0, 0, -1.2, -0.9]]
    assert {row.tokens.kind for row in read_atropos(rounded)} == {"unknown"}


TAUGHT = GROUP | {
    "distill_token_ids": [[[9, 8]] * 4, [[7, 6]] * 4],
    "distill_logprobs": [[[-0.1, -2.0]] * 4, [[-0.2, -3.0]] * 4],
    "overrides": [{"set_advantage_to_zero": True}, {}],
    "ref_logprobs": [[0.0, 0.0, -0.1, -0.2], [0.0, 0.0, -0.3, -0.4]],
    "generation_params": {"temperature": 0.6},
}


def test_teacher_scores_and_overrides_survive_a_round_trip():
    rows = list(read_atropos(TAUGHT))
    assert rows[1].extra["distill_token_ids"] == [[7, 6]] * 4
    assert [row.tokens.temperature for row in rows] == [0.6, 0.6]
    assert {row.tokens.kind for row in read_atropos(TAUGHT | {"generation_params": {"top_p": 0.9}})} == {"none"}
    written = write_atropos(rows)
    assert {name: written[name] for name in TAUGHT if name != "advantages"} == {
        name: value for name, value in TAUGHT.items() if name != "advantages"
    }


def test_rewards_of_single_turns_are_scores_of_these():
    messages = [*said("a"), {"role": "user", "content": "more"}, {"role": "assistant", "content": "b", "reward": 0.25}]
    row = GROUP | {"messages": [messages, messages]}
    first = next(read_atropos(row))
    assert [(judgement.turn, judgement.value) for judgement in first.judgements] == [(None, 1.0), (1, 0.25)]
    assert write_atropos([first, first])["messages"] == [messages, messages]


def test_a_batch_is_its_groups():
    batch = {"batch": [GROUP, GROUP | {"scores": [0.0, -1.0]}]}
    assert is_atropos(batch)
    names = [row.group for row in read_atropos(batch)]
    assert names[0] == names[1] != names[2] == names[3]
    assert names[0] == next(read_atropos(GROUP)).group


@given(st.lists(st.tuples(st.integers(0, 9), st.booleans(), st.floats(-9, 0)), min_size=2, max_size=6))
def test_masks_and_log_probs_survive(tokens):
    ids = [token for token, _, _ in tokens]
    kept = [False, *(mask for _, mask, _ in tokens[1:])]
    row = {
        "tokens": [ids],
        "masks": [[token if mask else -100 for token, mask in zip(ids, kept, strict=True)]],
        "scores": [0],
        "inference_logprobs": [[value if mask else 1.0 for (_, _, value), mask in zip(tokens, kept, strict=True)]],
        "messages": [said("a")],
    }
    [read] = read_atropos(row)
    assert list(read.tokens.mask) == kept
    written = write_atropos([read])
    assert {name: written[name] for name in row} == row


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"scores": [1.0]}, "scores: not one entry a sequence"),
        ({"masks": [[-100], [-100]]}, "masks\\[\\]: not one entry a token"),
        ({"masks": [[-100, -100, 9, 4], GROUP["masks"][1]]}, "neither -100 nor the token"),
        ({"tokens": [[1, 2, 3, "x"], [1, 2, 5, 6]]}, "not token ids"),
        ({"tokens": [[1, 2, 3, 2**31], [1, 2, 5, 6]]}, "not token ids"),
        ({"scores": [True, 1.0]}, "not a number"),
        ({"messages": None}, "include_messages"),
        ({name: [] for name in GROUP}, "tokens: no sequence"),
        ({"distill_token_ids": [[[1]], [[1]]]}, "distill_token_ids\\[\\]: not one list a token"),
        ({"distill_token_ids": [[[1]] * 4] * 2, "distill_logprobs": [[[]] * 4] * 2}, "not one number a token of the teacher"),
        ({"messages": [[*said("a"), {"role": "assistant", "content": "", "reward": "much"}], said("b")]}, "reward: not a number"),
    ],
)
def test_a_group_that_does_not_fit_together_is_refused(change, reason):
    with pytest.raises(RefusedError, match=reason):
        list(read_atropos(GROUP | change))
