"""What is held out of stored data: whose rows are on which side, and what is drawn for a verdict."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clawpipe.core.contracts.odcs import newest_version
from clawpipe.core.contracts.schema import schema_of
from clawpipe.core.store.artifacts import Store
from clawpipe.core.store.datasets import publish_dataset, read_dataset
from clawpipe.core.store.refs import DatasetRef
from clawpipe.errors import DataError
from clawpipe.learn.evaluation.heldout.conversations import SIGNS, draw_conversations
from clawpipe.learn.evaluation.heldout.holding import hold_out, identity_of
from clawpipe.learn.evaluation.heldout.pairs import draw_pairs
from clawpipe.learn.evaluation.heldout.turns import call_turn, heldout_tokens, reply_turn, scored_tokens
from clawpipe.learn.evaluation.verdict.looks import Looks, look
from clawpipe.model.policy.base import resolve_base
from clawpipe.model.policy.version import base_ref
from clawpipe.model.policy.vocabulary import load_tokenizer
from clawpipe.record.nights.conclude import count_evidence
from clawpipe.record.nights.status import NightStatus, entry

Row = dict[str, Any]
NOBODY: dict[str, int] = {}


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


def conversation(number: int, *, user: str | None = None, session: str | None = None, tokens: int = 6) -> Row:
    said = [{"role": "user", "content": f"question {number}"}, {"role": "assistant", "content": "answer"}]
    return {
        "trajectory_id": f"t{number:03}",
        "item_id": f"i{number}",
        "group_id": f"i{number}/p",
        "rollout_index": 0,
        "environment": "imported",
        "split": "train",
        "source": "imported",
        "policy_version": "p",
        "renderer_digest": "r",
        "messages": [message | {"tool_calls": [], "tool_call_id": None, "name": None} for message in said],
        "token_ids": list(range(tokens)),
        "loss_mask": [False] * (tokens - 2) + [True, True],
        "logprobs": [0.0] * (tokens - 2) + [-0.5, -0.5],
        "prompt_tokens": tokens - 2,
        "turns": [{"start": tokens - 2, "end": tokens, "kind": "main", "finish_reason": "stop"}],
        "temperature": 1.0,
        "seed": 0,
        "finish_reason": "stop",
        "tokens": "recorded",
        "user_id": user,
        "session_id": session,
    }


def stored(store: Store, rows: list[Row], name: str = "trajectories") -> DatasetRef:
    table = pa.Table.from_pylist(rows, schema_of(name))
    return publish_dataset(store, name, [table], schema_version=newest_version(name))


def ids(store: Store, ref: DatasetRef, column: str = "trajectory_id") -> list[str]:
    return read_dataset(store, ref, [column])[column].to_pylist()


def test_all_rows_of_a_user_are_on_one_side(store):
    rows = [conversation(number, user=f"user {number % 40}", session=f"s{number}") for number in range(400)]
    result = hold_out(store, stored(store, rows), 0.25)
    users = [set(ids(store, ref, "user_id")) for ref in (result.dataset, result.extra("heldout"))]
    assert users[0] | users[1] == {f"user {number}" for number in range(40)}
    assert users[0] & users[1] == set()
    assert 0 < len(users[1]) < 20
    assert (result.rows_in, result.rows_out + result.filtered["held out"]) == (400, 400)


def test_more_rows_move_none_to_the_other_side(store):
    """What is ingested later must not change what no night may train on."""
    rows = [conversation(number, session=f"s{number}") for number in range(200)]
    few = hold_out(store, stored(store, rows[:100]), 0.2)
    many = hold_out(store, stored(store, rows), 0.2)
    assert set(ids(store, few.extra("heldout"))) == set(ids(store, many.extra("heldout"))) & {
        row["trajectory_id"] for row in rows[:100]
    }


@given(st.sampled_from(["ann", None]), st.sampled_from(["s1", None]), st.text(max_size=3))
def test_a_row_belongs_to_its_user_before_its_session(user, session, item):
    found = identity_of({"user_id": user, "session_id": session, "item_id": item})
    assert found.partition("/")[0] == ("user" if user else "session" if session else "prompt")
    assert found == identity_of({"user_id": user, "session_id": None if user else session, "item_id": item})
    assert not (user or session) or not {"ann", "s1"} & set(found.split("/"))


def test_a_row_that_breaks_the_contract_is_rejected_and_counted(store):
    rows = [conversation(number, session=f"s{number}") for number in range(20)]
    rows[3] = rows[3] | {"loss_mask": [True]}
    result = hold_out(store, stored(store, rows), 0.5)
    assert result.extra("quarantine").rows == 1
    assert result.rows_in == result.rows_out + sum(result.filtered.values())


def test_only_good_replies_that_can_be_scored_are_drawn(store):
    rows = [conversation(number, session=f"s{number}") for number in range(5)]
    rows[3] |= {"loss_mask": [False] * 6}
    rows[4] = conversation(4, session="s4", tokens=30)
    judged = [{"trajectory_id": f"t{number:03}", "success": number != 1, "value": 1.0} for number in range(2)]
    about = {"turn": None, "scorer": "imported", "origin": "verifier", "reason": "", "evidence": "{}"}
    scores = stored(store, [row | about for row in judged], "scores")
    conversations = stored(store, rows)
    drawn = draw_conversations(store, [conversations], [scores], "any", 20, 10, NOBODY)
    assert ids(store, drawn.dataset, "item_id") == ["t000", "t002"]
    assert drawn.filtered == {"no success": 1, "no turn to score": 1, "too long": 1}
    successes = draw_conversations(store, [conversations], [scores], "success", 20, 10, NOBODY)
    assert ids(store, successes.dataset, "item_id") == ["t000"]
    assert heldout_tokens(store, successes.extra("conversations")) == [
        {"token_ids": list(range(6)), "loss_mask": [False] * 4 + [True] * 2}
    ]


def test_cut_answers_are_no_evidence(store):
    rows = [conversation(number, session=f"s{number}") for number in range(5)]
    whole = [("imported", "completed"), ("imported", None), ("rollout", "truncated")]
    for row, (source, status) in zip(rows, [("imported", "truncated"), ("captured", "aborted"), *whole], strict=True):
        row |= {"source": source, "status": status}
    for measure in ("likelihood", "judged"):
        drawn = draw_conversations(store, [stored(store, rows)], [], "any", 20, 10, NOBODY, measure=measure)
        assert ids(store, drawn.dataset, "item_id") == ["t002", "t003", "t004"]
        assert drawn.filtered == {"attempt truncated": 1, "attempt aborted": 1}


SIDED = {"loss_mask": [False, False, True, True, False, True, True, False, True], "token_ids": list(range(9))} | {
    "turns": [
        {"start": 2, "end": 4, "kind": "main", "finish_reason": "stop"},
        {"start": 5, "end": 7, "kind": "side", "finish_reason": "stop"},
        {"start": 8, "end": 9, "kind": "main", "finish_reason": "stop"},
    ]
}


def with_side_turn(number: int, before: int = 0) -> Row:
    """`before`: replies of the history, which are no turns."""
    call = [{"id": "c", "name": "stock", "arguments": "{}", "malformed": False}]
    said = [("user", "q")] + [("assistant", "old"), ("user", "r")] * before
    said += [("assistant", "first"), ("user", "s"), ("assistant", "side"), ("user", "t"), ("assistant", "last")]
    messages = [{"role": role, "content": text, "tool_calls": [], "tool_call_id": None, "name": None} for role, text in said]
    for message in messages:
        message["tool_calls"] = call if message["role"] == "assistant" else []
    row = conversation(number, session=f"s{number}") | SIDED
    return row | {"messages": messages, "logprobs": [0.0] * 9, "prompt_tokens": 2, "kinds": None, "tools": None}


@pytest.mark.parametrize("before", [0, 2])
def test_side_turns_with_tokens_are_no_evidence(before):
    """Of 300 conversations 85 stood for their side turn."""
    rows = [with_side_turn(number, before) for number in range(60)]
    assert scored_tokens(rows[0])[1] == [False, False, True, True, False, False, False, False, True]
    for turn_of in (reply_turn, call_turn):
        turns = [turn for row in rows if (turn := turn_of(row))]
        assert {(turn.reply.content, len(turn.prompt), turn.length) for turn in turns} == {("first", 2, 2), ("last", 8, 1)}


def test_a_conversation_of_side_turns_alone_has_no_turn(store):
    row = with_side_turn(0)
    row["turns"] = [turn | {"kind": "side"} for turn in row["turns"]]
    with pytest.raises(DataError, match="1 x no turn to score"):
        draw_conversations(store, [stored(store, [row])], [], "any", 20, 10, NOBODY)


def test_the_least_looked_at_are_drawn_first(store):
    rows = [conversation(number, session=f"s{number}") for number in range(6)]
    seen = {identity_of(row): 1 for row in rows[:3]}
    drawn = draw_conversations(store, [stored(store, rows)], [], "any", 20, 3, seen)
    assert ids(store, drawn.dataset, "identity") == [identity_of(row) for row in rows[3:]]
    assert drawn.details == {"identities": 3, "fresh": 3, "looks": 0.0, "available": 6, "left": 0, "known": 3}
    assert drawn.filtered == {"not drawn": 3}
    assert ids(store, drawn.dataset, "session_id") == ["s3", "s4", "s5"]  # by which `forget` finds them


def test_looks_at_other_conversations_leave_these_fresh(store, home):
    """A night on new conversations holds out others than the nights before it."""
    ledger = Looks(home.root, "agent", "conversations")
    ledger.record("one", "one", [f"user/{number}" for number in range(30)])
    rows = [conversation(number, session=f"s{number}") for number in range(20)]
    drawn = draw_conversations(store, [stored(store, rows)], [], "any", 20, 16, ledger.seen("two"))
    look(store, ledger, "two", "two", drawn.dataset)
    status = NightStatus(night="two", measure="likelihood", steps=[entry("draw_conversations", False, 1, None, drawn)])
    assert (
        count_evidence(status, ledger, 16).evidence_left.sentence() == "4 of 20 held-out identities are fresh, a night asks for 16"
    )
    ledger.record("three", "three", ["user/30"])
    assert count_evidence(status, ledger, 16).evidence_left.fresh == 3  # it may have been one of these


def test_nothing_held_out_says_what_to_do(store):
    with pytest.raises(DataError, match="no held-out conversation") as refused:
        draw_conversations(store, [stored(store, [])], [], "any", 20, 3, NOBODY)
    assert refused.value.where == "evaluation.heldout_share"


def test_conversations_that_nobody_judged_are_the_reason(store):
    """It asked for more conversations, which nobody would have judged either."""
    held = stored(store, [conversation(number, session=f"s{number}") for number in range(3)])
    with pytest.raises(DataError, match=r"of 3 held out none has good replies \(3 x no verifier score\)") as refused:
        draw_conversations(store, [held], [], "success", 20, 3, NOBODY)
    assert "set curation.imitate to any" in refused.value.fix


def test_without_a_call_the_setting_that_asks_for_one_is_named(store):
    conversations = stored(store, [conversation(number, session=f"s{number}") for number in range(3)])
    with pytest.raises(DataError, match="no held-out conversation has a tool call to make anew, of 3") as refused:
        draw_conversations(store, [conversations], [], "any", 20, 3, NOBODY, measure="tool calls")
    assert refused.value.where == "evaluation.replay_calls"


def test_pairs_of_text_get_token_ids(store):
    said = {"tool_calls": [], "tool_call_id": None, "name": None}
    sides = {side: [{"role": "assistant", "content": side} | said] for side in ("chosen", "rejected")}
    pair = {
        "item_id": "i",
        "group_id": "i/",
        "strategy": "imported",
        "chosen_id": "c",
        "rejected_id": "r",
        "prompt_tokens": 0,
        "temperature": 0.0,
        "weight": 1.0,
        "tokens": "none",
        "prompt": [{"role": "user", "content": "which?"} | said],
    }
    streams = {f"{side}_{stream}": [] for side in sides for stream in ("token_ids", "loss_mask")}
    base = base_ref("random", resolve_base("random").digest, "pythonic", "float32")
    nobody = [{"role": "user", "content": "a"} | said]
    rows = [pair | sides | streams | {"pair_id": "good"}, pair | sides | streams | {"pair_id": "bad", "chosen": nobody}]
    drawn = draw_pairs(store, [stored(store, rows, "preference_pairs")], base, 200, 10, NOBODY)
    assert (ids(store, drawn.dataset, "item_id"), drawn.filtered) == (["good"], {"no assistant turn after the prompt": 1})
    [row] = read_dataset(store, drawn.extra("conversations")).to_pylist()
    shared = row["chosen_loss_mask"].index(True)
    assert row["chosen_token_ids"][:shared] == row["rejected_token_ids"][:shared]
    tokenizer = load_tokenizer(resolve_base("random").path)
    for side in sides:
        assert tokenizer.decode(row[f"{side}_token_ids"][shared:], skip_special_tokens=True).strip() == side


def test_people_outrank_judges_in_what_is_a_good_reply(store):
    """A judge's doubt made a reply that its user had praised no evidence."""
    conversations = stored(store, [conversation(number, session=f"s{number}") for number in range(3)])
    said = [(0, "user", True), (0, "judge", False), (1, "user", False), (1, "judge", True), (2, "judge", True)]
    about = {"turn": None, "reason": "", "evidence": "{}", "value": 1.0}
    rows = [about | {"trajectory_id": f"t{number:03}", "scorer": who, "origin": who, "success": good} for number, who, good in said]
    drawn = draw_conversations(store, [conversations], [stored(store, rows, "scores")], "success", 20, 10, NOBODY)
    assert ids(store, drawn.dataset, "item_id") == ["t000", "t002"]


def test_a_praised_turn_makes_a_reply_good(store):
    """Records of OpenClaw-RL judge turns and never the whole: their nights ended without any evidence."""
    conversations = stored(store, [conversation(number, session=f"s{number}") for number in range(4)])
    said = [(0, 0, 1.0), (1, 0, -1.0), (2, 0, 1.0), (2, 1, -1.0), (3, 0, 0.0)]
    about = {"scorer": "prm", "origin": "judge", "reason": "", "evidence": "{}", "success": None}
    rows = [about | {"trajectory_id": f"t{number:03}", "turn": turn, "value": value} for number, turn, value in said]
    drawn = draw_conversations(store, [conversations], [stored(store, rows, "scores")], "success", 20, 10, NOBODY)
    assert ids(store, drawn.dataset, "item_id") == ["t000", "t002"]
    assert drawn.filtered == {"no success": 1, "no verifier score": 1}


@pytest.mark.parametrize("order", [1, -1])
def test_a_thumb_given_again_is_evidence_by_its_last_word(store, order):
    """A reply whose user took the praise back was evidence of good replies, whatever curation said of it."""
    conversations = stored(store, [conversation(number, session=f"s{number}") for number in range(2)])
    about = {"turn": 0, "origin": "user", "reason": "", "evidence": "{}", "success": None}
    rows = [
        about | {"trajectory_id": f"t{number:03}", "scorer": f"imported/capture/user{again}", "value": value}
        for number, values in enumerate([(1.0, 1.0, -1.0), (-1.0, -1.0, 1.0)])
        for again, value in zip(("", "/2", "/10"), values, strict=True)
    ][::order]
    drawn = draw_conversations(store, [conversations], [stored(store, rows, "scores")], "success", 20, 10, NOBODY)
    assert ids(store, drawn.dataset, "item_id") == ["t001"]


def test_the_sign_of_a_number_is_evidence_where_it_is_a_label(store):
    """kto trained on conversations with a score of 1 or -1, and no night with such scores had any evidence."""
    conversations = stored(store, [conversation(number, session=f"s{number}") for number in range(5)])
    said = [("custom", 1.0), ("custom", -1.0), ("custom", 0.0), ("judge", 2.5), ("user", 0.5)]
    about = {"turn": None, "reason": "", "evidence": "{}", "success": None}
    rows = [
        about | {"trajectory_id": f"t{number:03}", "scorer": who, "origin": who, "value": value}
        for number, (who, value) in enumerate(said)
    ]
    scores = [stored(store, rows, "scores")]
    drawn = draw_conversations(store, [conversations], scores, SIGNS, 20, 10, NOBODY)
    assert ids(store, drawn.dataset, "item_id") == ["t000", "t004"]
    assert drawn.filtered == {"no success": 1, "no verifier score": 2}
    with pytest.raises(DataError, match="5 x no verifier score"):
        draw_conversations(store, [conversations], scores, "success", 20, 10, NOBODY)


def test_what_is_not_trained_on_for_its_score_is_no_evidence(store):
    """With curation.filters.min_score replies of low scores were held up as good ones."""
    conversations = stored(store, [conversation(number, session=f"s{number}") for number in range(4)])
    said = [(0, "custom", 0.9), (1, "custom", 0.2), (2, "custom", 0.9), (2, "verifier", 0.1)]
    about = {"turn": None, "reason": "", "evidence": "{}", "success": None}
    rows = [about | {"trajectory_id": f"t{number:03}", "scorer": who, "origin": who, "value": value} for number, who, value in said]
    scores = [stored(store, rows, "scores")]
    drawn = draw_conversations(store, [conversations], scores, "any", 20, 10, NOBODY, within=(0.5, None))
    assert ids(store, drawn.dataset, "item_id") == ["t000"]
    assert drawn.filtered == {"no verifier score": 1, "score out of range": 2}
    drawn = draw_conversations(store, [conversations], scores, "any", 20, 10, NOBODY, within=(None, 0.5))
    assert ids(store, drawn.dataset, "item_id") == ["t001", "t002"]
