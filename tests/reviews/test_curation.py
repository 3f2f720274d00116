"""What decisions of people do to the rows of a night: table by table, without a model."""

import pyarrow as pa
import pytest

from clawpipe.core.config.night import Curation
from clawpipe.core.store.datasets import read_dataset
from clawpipe.data.curation.joined_tables import stored_tables
from clawpipe.data.curation.runner import curate
from clawpipe.data.curation.stored_pairs import join_pairs
from clawpipe.record.reviews.edits import edited_rows
from clawpipe.record.reviews.table import SCHEMA, published
from tests.curation.conftest import Tables, message


@pytest.fixture
def tables(tmp_path):
    return Tables(tmp_path / "store")


def decision(row, verdict, **fields):
    return {"row_id": row, "verdict": verdict, "by": "ann", "at": "2026-01-02T03:04:05+00:00", "reason": ""} | fields


def curated(tables: Tables, decisions, method="sft", edits=False, **config):
    """`edits`: with the rows of edited answers, as a night that imitates has them, rendered to fixed tokens."""
    refs = [tables.publish(name, rows) for name, rows in (("trajectories", tables.trajectories), ("scores", tables.scores))]
    items, reviews = tables.publish("task_items", tables.items), published(tables.store, decisions)
    trajectories, scores, known = [refs[0]], [refs[1]], [reviews]
    if edits:
        made = edited_rows(tables.store, trajectories, reviews)
        rows = [row | {"rendered_ids": [1, 2, 3], "rendered_mask": [False, True, True]} for row in tables.rows(made)]
        trajectories, scores, known = (
            [*trajectories, tables.publish("trajectories", rows)],
            [*scores, made.extra("scores")],
            [reviews, made.extra("reviews")],
        )
    return curate(tables.store, trajectories, scores, items, Curation(**config), method, near=known, threads=1)


@pytest.fixture
def talks(tables):
    """Three conversations that somebody had, each of two turns; `a` was praised, `b` called a failure, nobody scored `c`."""
    for name, value in (("a", 1.0), ("b", 0.0), ("c", None)):
        tables.item(name, f"a question about {name} in a few more words?")
        asked = [message("user", f"about {name}?"), message("assistant", f"first {name}")]
        talk = [*asked, message("user", "and then?"), message("assistant", f"second {name}")]
        turns = [{"start": start, "end": start + 2, "kind": "main", "finish_reason": "stop"} for start in (3, 5)]
        ids, drawn = [1, 2, 3, 10, 11, ord(name), 13], [False] * 3 + [True] * 4
        streams = {"token_ids": ids, "loss_mask": drawn, "logprobs": [0.0] * 3 + [-0.5] * 4, "turns": turns}
        tables.rollout(name, 0, None, trajectory_id=name, messages=talk, source="captured", session_id=f"s{name}", **streams)
        if value is not None:
            tables.score(name, value, origin="user", scorer="thumb")
    return tables


METHODS = ("sft", "ppo")


@pytest.mark.parametrize("method", METHODS)
def test_a_rejected_row_teaches_no_method(talks, method):
    result = curated(talks, [decision("a", "rejected")], method)
    assert result.filtered["rejected by a person"] == 1
    assert "a" not in talks.kept(result)
    assert result.rows_in == result.rows_out + sum(result.filtered.values()) == 3


@pytest.mark.parametrize("method", METHODS)
def test_rows_that_wait_are_not_used_where_approval_is_asked(talks, method):
    decisions = [decision("a", "approved"), decision("b", "rejected")]
    result = curated(talks, decisions, method, approved_only=True)
    assert talks.kept(result) == ["a"]
    assert {"rejected by a person": 1, "waits for approval": 1}.items() <= result.filtered.items()


def test_without_any_decision_all_rows_wait(talks):
    result = curated(talks, [], approved_only=True)
    assert result.filtered == {"waits for approval": 3}


def test_without_the_setting_undecided_rows_teach(talks):
    result = curated(talks, [decision("b", "approved")])
    assert talks.kept(result) == ["a"]  # b was approved to teach, and what it teaches is that it failed


@pytest.mark.parametrize("method", ["sft", "kto"])
def test_approval_is_success_where_nobody_scored(talks, method):
    result = curated(talks, [decision("c", "approved")], method)
    [row] = [row for row in talks.rows(result) if row["trajectory_id"] == "c"]
    assert set(row["advantages"][3:]) == {1.0}


def test_approval_praises_no_turn_that_was_blamed(talks):
    talks.score("c", -1.0, turn=0, origin="judge", scorer="rules", success=None)
    talks.score("c", 1.0, turn=1, origin="judge", scorer="rules", success=None)
    result = curated(talks, [decision("c", "approved")])
    [row] = [row for row in talks.rows(result) if row["trajectory_id"] == "c"]
    assert row["advantages"] == [0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 1.0]


def test_a_group_is_compared_without_its_rejected_rollout(tables):
    tables.item("q", "what is it?")
    for index, reward in enumerate((1.0, 0.0, 0.0, 0.5)):
        tables.rollout("q", index, reward)
    result = curated(tables, [decision("q-3", "rejected")], "grpo", advantage="none")
    found = {row["trajectory_id"]: row["advantages"][-1] for row in tables.rows(result)}
    assert found == {"q-0": pytest.approx(2 / 3), "q-1": pytest.approx(-1 / 3), "q-2": pytest.approx(-1 / 3)}


@pytest.mark.parametrize("imitate", ["success", "chosen"])
def test_an_edited_answer_is_imitated_in_place_of_the_old_one(talks, imitate):
    edit = decision("b", "edited", turn=1, text="what a person wrote")
    result = curated(talks, [edit], edits=True, imitate=imitate)
    assert result.filtered["edited by a person"] == 1
    [row] = [row for row in talks.rows(result) if row["trajectory_id"].startswith("b")]
    assert row["trajectory_id"].startswith("b:edited:")
    assert row["token_ids"] == [1, 2, 3]
    assert row["advantages"] == [0.0, 1.0, 1.0]
    assert row["logprobs"] is None or set(row["logprobs"]) == {0.0}


@pytest.mark.parametrize("method", ["grpo"])
def test_methods_of_ratios_leave_an_edited_row_out(talks, method):
    talks.score("b", 1.0, turn=1, origin="judge", scorer="rules", success=None)
    result = curated(talks, [decision("b", "edited", turn=1, text="what a person wrote")], method, credit="turn")
    assert result.filtered["edited by a person, whose text has no log-probs"] == 1
    assert "b" not in talks.kept(result)


def test_the_row_of_an_edit_holds_nothing_of_what_was_drawn(talks):
    ref = talks.publish("trajectories", talks.trajectories)
    made = edited_rows(talks.store, [ref], published(talks.store, [decision("b", "edited", turn=1, text="mine")]))
    [row] = talks.rows(made)
    assert [one["content"] for one in row["messages"]] == ["about b?", "first b", "and then?", "mine"]
    assert (row["kinds"], row["tokens"], row["source"], row["policy_version"]) == (["side", "main"], "none", "imported", None)
    assert (row["token_ids"], row["loss_mask"], row["logprobs"], row["turns"]) == ([], [], [], [])
    assert (row["item_id"], row["session_id"]) == ("b", "sb")


def test_an_edit_cuts_off_what_was_said_after_it(talks):
    ref = talks.publish("trajectories", talks.trajectories)
    made = edited_rows(talks.store, [ref], published(talks.store, [decision("b", "edited", turn=0, text="mine")]))
    assert [one["content"] for one in talks.rows(made)[0]["messages"]] == ["about b?", "mine"]


def test_an_edit_of_a_turn_that_is_not_there_is_counted(talks):
    ref = talks.publish("trajectories", talks.trajectories)
    made = edited_rows(talks.store, [ref], published(talks.store, [decision("b", "edited", turn=7, text="mine")]))
    assert (made.rows_in, made.rows_out, made.filtered) == (1, 0, {"the edited turn is not there": 1})


def test_an_edit_is_a_pair_of_the_new_answer_and_the_old(talks):
    ref = talks.publish("trajectories", talks.trajectories)
    made = edited_rows(talks.store, [ref], published(talks.store, [decision("b", "edited", turn=1, text="mine")]))
    joined = join_pairs(talks.store, [], [made.extra("pairs")], talks.publish("task_items", talks.items))
    [pair] = read_dataset(talks.store, joined.output).to_pylist()
    assert [one["content"] for one in pair["prompt"]] == ["about b?", "first b", "and then?"]
    assert [one["content"] for one in pair["chosen"] + pair["rejected"]] == ["mine", "second b"]


def test_stored_pairs_are_rejected_and_wait_alike(talks):
    ref = talks.publish("trajectories", talks.trajectories)
    edits = [decision(name, "edited", turn=1, text="mine") for name in "abc"]
    pairs = edited_rows(talks.store, [ref], published(talks.store, edits)).extra("pairs")
    names = sorted(row["pair_id"] for row in read_dataset(talks.store, pairs).to_pylist())
    decisions = [decision(names[0], "rejected"), decision(names[1], "approved")]
    table = {"reviews": pa.Table.from_pylist([one | {"turn": None, "text": None} for one in decisions], SCHEMA)}
    items, config = talks.publish("task_items", talks.items), Curation(approved_only=True)
    joined = join_pairs(talks.store, [], [pairs], items, config, tables=table)
    assert joined.filtered == {"rejected by a person": 1, "waits for approval": 1}
    assert [row["pair_id"] for row in read_dataset(talks.store, joined.output).to_pylist()] == [names[1]]


def test_pairs_of_the_night_itself_do_not_wait(talks):
    """Their trajectories were approved; a pair has an id of its own, about which nobody can have decided."""
    ref = talks.publish("trajectories", talks.trajectories)
    edits = [decision(name, "edited", turn=1, text="mine") for name in "ab"]
    made, written = (edited_rows(talks.store, [ref], published(talks.store, [edit])) for edit in edits)
    items, known = talks.publish("task_items", talks.items), stored_tables(talks.store, [written.extra("reviews")])
    config = Curation(approved_only=True)
    joined = join_pairs(talks.store, [made.extra("pairs")], [written.extra("pairs")], items, config, tables=known)
    assert (joined.rows_out, joined.filtered) == (2, {})
