"""Stored preference pairs beside those of the night."""

import json

import pyarrow as pa
import pytest

from clawpipe.core.config.curation import Curation
from clawpipe.core.config.night import EnvironmentConfig
from clawpipe.core.contracts.schema import schema_of
from clawpipe.core.store.artifacts import Store
from clawpipe.core.store.datasets import publish_dataset, read_dataset
from clawpipe.data.curation.joined_tables import stored_tables
from clawpipe.data.curation.stored_pairs import join_pairs
from clawpipe.data.similarity.heldout import near_heldout
from clawpipe.errors import DataError
from clawpipe.learn.evaluation.heldout.draw import draw_heldout, make_benchmark, make_task_items


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "store")


@pytest.fixture
def items(store):
    config = EnvironmentConfig(name="letters", train_items=2, heldout_items=2, benchmark_items=0)
    return draw_heldout(store, make_task_items(store, config).dataset, make_benchmark(store, config).dataset, config, {}).extras[
        "all"
    ]


def message(role, content):
    return {"role": role, "content": content, "tool_calls": [], "tool_call_id": None, "name": None}


def pair(name, item="i", question="bado", **changes):
    text = {"prompt": [message("user", question)], "chosen": [message("assistant", "a")], "rejected": [message("assistant", "b")]}
    streams = {f"{side}_{stream}": [] for side in ("chosen", "rejected") for stream in ("token_ids", "loss_mask")}
    facts = {"pair_id": name, "item_id": item, "group_id": item, "strategy": "imported", "chosen_id": f"{name}c"}
    facts |= {"rejected_id": f"{name}r", "weight": 1.0, "temperature": 0.0, "tokens": "none", "prompt_tokens": 0}
    return facts | text | streams | changes


@pytest.fixture
def stored(store):
    return lambda *rows, version="2": publish_dataset(
        store,
        "preference_pairs",
        [pa.Table.from_pylist(list(rows), schema_of("preference_pairs", version))],
        schema_version=version,
    )


def names(store, result):
    return [row["pair_id"] for row in read_dataset(store, result.dataset).to_pylist()]


def test_stored_pairs_are_joined_in_the_given_order(store, items, stored):
    made, first, second = stored(pair("m2"), pair("m1")), stored(pair("a")), stored(pair("c"), pair("b"))
    result = join_pairs(store, [made], [first, second], items)
    assert names(store, result) == ["m2", "m1", "a", "c", "b"]
    assert (result.rows_in, result.rows_out, result.filtered, result.extras) == (5, 5, {}, {})
    assert set(result.dataset.parents) == {made.digest, first.digest, second.digest, items.digest}
    assert join_pairs(store, [], [first], items).rows_out == 1


def test_held_out_and_repeated_pairs_are_filtered(store, items, stored):
    heldout = next(row for row in read_dataset(store, items).to_pylist() if row["split"] == "heldout")
    question = heldout["messages"][-1]["content"]
    later = [message("assistant", "a"), message("user", f"  {question.upper()} "), message("assistant", "c")]
    rows = [pair("item", item=heldout["item_id"]), pair("asked", question=question), pair("later", rejected=later), pair("good")]
    result = join_pairs(store, [stored(pair("good"))], [stored(*rows)], items)
    assert names(store, result) == ["good"]
    assert result.filtered == {"held-out item": 1, "held-out question": 2, "pair given twice": 1}
    assert result.rows_in == result.rows_out + sum(result.filtered.values())


def test_rows_that_break_the_contract_go_to_quarantine(store, items, stored):
    result = join_pairs(store, [], [stored(pair("fine")), stored(pair("bad", tokens="maybe"), pair("well"))], items)
    assert names(store, result) == ["fine", "well"]
    assert sum(result.filtered.values()) == 1
    assert list(result.extras) == ["quarantine-2"]
    assert result.rows_in == result.rows_out + 1


def test_another_layout_is_refused(store, items):
    other = publish_dataset(store, "preference_pairs", [pa.table({"pair_id": ["x"]})], schema_version="2")
    with pytest.raises(DataError, match="is missing"):
        join_pairs(store, [], [other], items)


def test_pairs_of_the_older_version_join_those_of_the_newer_one(store, items, stored):
    older, newer = stored(pair("a"), version="1"), stored(pair("b", session_id="s1"))
    rows = read_dataset(store, join_pairs(store, [], [older, newer], items).dataset).to_pylist()
    assert [(row["pair_id"], row["session_id"]) for row in rows] == [("a", None), ("b", "s1")]


def joined(store, items, rows, made=(), **settings):
    """What is left of stored pairs, and what was filtered."""
    config, versions = Curation(**settings), settings.pop("versions", ())
    result = join_pairs(store, list(made), [rows], items, config, versions=versions)
    assert result.rows_in == result.rows_out + sum(result.filtered.values())
    return names(store, result), result.filtered


QUESTION = "How many iron kettles and copper pans are in stock today?"


@pytest.fixture
def asked(store):
    """Task items of which one asks QUESTION, held out."""
    return held_out(store, QUESTION)


def held_out(store, question, environment="shop", truth="{}"):
    row = {"item_id": "h", "identity": "h", "environment": environment, "kind": "chat", "split": "heldout", "slice": "s"}
    row |= {"messages": [message("user", question)], "truth": truth, "ordinal": 0}
    return publish_dataset(store, "task_items", [pa.Table.from_pylist([row], schema_of("task_items"))])


def test_a_held_out_question_is_found_within_other_words(store, asked, stored):
    said = [QUESTION, QUESTION.upper(), QUESTION[:-1], f"Please tell me: {QUESTION}", f"Please tell me {QUESTION}"]
    rows = [pair(str(number), question=text) for number, text in enumerate([*said, f"{QUESTION}\n\nThanks!"])]
    assert joined(store, asked, stored(*rows, pair("b"))) == (["b"], {"held-out question": 6})


@pytest.mark.parametrize("text", ["How many iron kettles are in stock today?", "Is it in stock today?"])
def test_another_question_of_like_words_stays(text, store, asked, stored):
    assert joined(store, asked, stored(pair("a", question=text))) == (["a"], {})


def test_stored_pairs_pass_no_canary(store, items, stored):
    said = [pair("a", question="say CANARY-7f3"), pair("b", rejected=[message("assistant", "canary-7F3!")]), pair("c", item="x")]
    assert joined(store, items, stored(*said, pair("d")), canaries=["CANARY-7f3", "x"]) == (["d"], {"canary": 3})


def test_pairs_near_to_held_out_questions_are_filtered(store, asked, stored):
    near = [message("assistant", f"You mean: {QUESTION.replace('today', '').lower()}")]
    rows = stored(pair("a", chosen=near), pair("b"))
    settings = Curation(near={"heldout": True, "heldout_words": 6}).near
    table = near_heldout(store, rows, asked, settings).dataset
    result = join_pairs(store, [], [rows, rows], asked, tables=stored_tables(store, [table, table]))
    assert (names(store, result), result.filtered) == (["b"], {"held-out n-gram": 2, "pair given twice": 1})


def test_quotas_and_shares_count_stored_pairs(store, items, stored):
    rows = [pair(f"a{k}", item=f"i{k}", user_id="ann", session_id=f"s{k % 2}") for k in range(6)]
    left, filtered = joined(store, items, stored(*rows), quotas={"per_user": 4})
    assert (len(left), filtered) == (4, {"beyond the quota of its user": 2})
    left, filtered = joined(store, items, stored(*rows, pair("free")), quotas={"session_share": 0.4})
    assert (len(left), filtered) == (5, {"beyond the share of its session": 2})
    captured = {"format": "capture", "file": "f", "line": 1}
    assert joined(store, items, stored(pair("a", origin=captured), pair("b")), quotas={"captured": 0}) == (
        ["b"],
        {"beyond the ceiling on captured": 1},
    )


def test_quotas_leave_the_pairs_of_the_night_alone(store, items, stored):
    """Their trajectories have passed them."""
    made = stored(*[pair(f"m{k}", strategy="all-margin") for k in range(3)])
    left, filtered = joined(store, items, stored(pair("a"), pair("b")), made=[made], quotas={"per_item": 1})
    assert (left[:3], len(left), filtered) == (["m0", "m1", "m2"], 4, {"beyond the quota of its item": 1})


def test_stored_pairs_of_old_policies_are_filtered(store, items, stored):
    rows = stored(*[pair(name, policy_version=version) for name, version in (("a", "new"), ("b", "old"), ("c", "other"))])
    config = Curation(max_staleness=0)
    result = join_pairs(store, [], [rows], items, config, versions=["new", "old"])
    assert (names(store, result), result.filtered) == (["a"], {"policy version too old": 1, "policy version unknown": 1})


def test_opposite_pairs_do_not_both_train(store, items, stored):
    """One undid what the other taught."""
    sides = {"chosen": [message("assistant", "b")], "rejected": [message("assistant", "a")]}
    rows = [pair("a"), pair("b", **sides), pair("c", question="another", **sides), pair("d", chosen=[message("assistant", "c")])]
    assert joined(store, items, stored(*rows)) == (["c", "d"], {"opposite of another pair": 2})
    assert joined(store, items, stored(rows[1]), made=[stored(rows[0])]) == ([], {"opposite of another pair": 2})


GREETING = "hello, how are you"


@pytest.mark.parametrize("greeting", ["hi", GREETING, "hola", "\u4f60\u597d", "\u3053\u3093\u306b\u3061\u306f"])
def test_a_greeting_is_no_held_out_question(greeting, store, stored):
    """Every row in which somebody said it was lost."""
    items = held_out(store, greeting, "conversations", json.dumps({"dialogue": f"{greeting}\nHello!\nbye\nBye."}))
    later = [message("assistant", "Hello!"), message("user", "bye"), message("assistant", "Bye.")]
    rows = [
        pair("copy", question=greeting, chosen=later),
        pair("other", question=greeting),
        pair("later", question=f"{greeting} there"),
    ]
    assert joined(store, items, stored(*rows)) == (["other", "later"], {"held-out conversation": 1})
    assert joined(store, held_out(store, greeting), stored(*rows[:2])) == (
        [],
        {"held-out question": 2},
    )  # a task that asks just that


@pytest.mark.parametrize("side", ["chosen", "rejected"])
def test_a_side_that_goes_on_from_a_held_out_one_is_left_out(side, store, stored):
    said = [("user", "hola"), ("assistant", "Hello!"), ("user", "why is the sky blue at noon"), ("assistant", "Scattering.")]
    items = held_out(store, "hola", "conversations", json.dumps({"said": [{"role": role, "text": text} for role, text in said]}))
    longer = [message(role, text) for role, text in [*said[1:], ("user", "more"), ("assistant", "No.")]]
    rows = [pair("copy", question="hola", **{side: longer}), pair("other", question="hola")]
    assert joined(store, items, stored(*rows)) == (["other"], {"held-out conversation": 1})
