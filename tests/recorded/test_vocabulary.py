"""Ids that a policy's model cannot read, and ids that spell something else to it."""

import json

import pytest
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit

from clawpipe.core.contracts.validate import validate
from clawpipe.core.store.datasets import read_dataset
from clawpipe.model.policy.tiny import byte_tokenizer
from clawpipe.play.recorded.vocabulary import BEYOND, FOREIGN, READ_AS_TEXT, fault_of, fit_vocabulary

TEXT = {"tokens": "none", "token_ids": [], "loss_mask": [], "logprobs": [], "turns": [], "prompt_tokens": 0, "logprobs_kind": None}


def changed(row, name, shift):
    """The row with the ids of its turn moved."""
    start = row["prompt_tokens"]
    return row | {
        "trajectory_id": name,
        "token_ids": [*row["token_ids"][:start], *[(token + shift) for token in row["token_ids"][start:]]],
    }


def test_ids_of_another_tokenizer_cost_their_rows_alone(store, base, talks, published):
    """Ids beyond the vocabulary ended the night with a traceback, and foreign ones within it were trained."""
    row = talks.sampled(1, 1.0)[0]
    letters = byte_tokenizer().encode("kettle on")
    said = [row["messages"][0], row["messages"][1] | {"content": "kettle on"}]
    streams = {"loss_mask": [False] * row["prompt_tokens"] + [True] * 9, "logprobs": [0.0] * row["prompt_tokens"] + [-1.0] * 9}
    spans = [row["turns"][0] | {"end": row["prompt_tokens"] + 9}]
    good = row | streams | {"token_ids": row["token_ids"][: row["prompt_tokens"]] + letters, "messages": said, "turns": spans}
    rows = [good, changed(good, "foreign", 1), changed(good, "beyond", 1000), good | TEXT | {"trajectory_id": "text"}]
    result = fit_vocabulary(store, published(rows), base)
    assert [row["trajectory_id"] for row in read_dataset(store, result.dataset).to_pylist()] == ["t0", "text"]
    assert (result.rows_in, result.rows_out, result.filtered) == (4, 2, {FOREIGN: 1, BEYOND: 1})
    refused = read_dataset(store, result.extras["quarantine"]).to_pylist()
    assert [(row["row_id"], row["reasons"]) for row in refused] == [("foreign", [FOREIGN]), ("beyond", [BEYOND])]
    assert json.loads(refused[0]["row"])["token_ids"] == rows[1]["token_ids"]
    assert validate(store, result.dataset, "trajectories").filtered == {}


def test_foreign_tokens_without_log_probs_leave_their_text(store, base, talks, published):
    """What a harness made of an answer for another trainer's model says nothing here, and the answer still does."""
    row = changed(talks.sampled(1, 1.0)[0], "foreign", 1000)
    row |= {"logprobs": [0.0] * len(row["logprobs"]), "logprobs_kind": "none"}
    earlier = {"role": "assistant", "content": "hm", "tool_calls": [], "tool_call_id": None, "name": None}
    row["messages"] = [row["messages"][0], earlier, *row["messages"]]
    result = fit_vocabulary(store, published([row, talks.sampled(1, 1.0)[0]]), base)
    text, sampled = read_dataset(store, result.dataset).to_pylist()
    assert (text["tokens"], text["token_ids"], text["kinds"], text["messages"][1]["content"]) == (
        "none",
        [],
        ["side", "main"],
        "hm",
    )
    assert (sampled["tokens"], result.rows_out, result.filtered) == ("recorded", 2, {})
    assert result.details == {READ_AS_TEXT: 1}
    assert validate(store, result.dataset, "trajectories").filtered == {}


def test_what_a_policy_has_sampled_is_of_its_vocabulary(store, base, talks, published):
    trajectories = published(talks.sampled(8, 1.0))
    assert fit_vocabulary(store, trajectories, base).dataset == trajectories


WORDS = ["<s>", "look", "stock", "kettle", "it", "is", "57", "</s>", "<think>", "hm", "user", "(", ")"]


def spoken(*turns):
    """A row of assistant messages and what was sampled for them, in words of a small vocabulary."""
    ids, spans = [0], []
    messages = [{"role": "user", "content": "how many?", "tool_calls": []}]
    for content, calls, said in turns:
        spans.append({"start": len(ids), "end": len(ids) + len(said.split())})
        ids += [WORDS.index(word) for word in said.split()]
        made = [{"name": name, "arguments": json.dumps(arguments)} for name, arguments in calls]
        messages.append({"role": "assistant", "content": content, "tool_calls": made})
    return {"token_ids": ids, "turns": spans, "messages": messages}


@pytest.mark.parametrize(
    ("turns", "fault"),
    [
        ([("it is 57", [], "it is 57 </s>")], None),
        ([("it is 57", [], "<think> hm look </s> it is 57 </s>")], None),  # a harness took the thought away
        ([("", [("stock", {"kettle": 57})], "stock ( kettle 57 ) </s>")], None),
        ([("", [], "</s>")], None),  # nothing was said that could be compared
        ([("IT  IS\n57", [], "it is 57 </s>")], None),
        ([("it is 57", [], "user ( kettle")], FOREIGN),
        ([("it is 57", [], "it is 57"), ("look", [], "( kettle )")], None),  # most of it is there
        ([("old", [], ""), ("it is 57", [], "it is 57")], None),
    ],
)
def test_words_are_compared_and_markup_is_not(turns, fault):
    tokenizer = Tokenizer(WordLevel({word: number for number, word in enumerate(WORDS)}, unk_token="<s>"))
    tokenizer.pre_tokenizer = WhitespaceSplit()
    assert fault_of(spoken(*turns), tokenizer, len(WORDS)) == fault


def test_replies_before_the_first_turn_are_nobodys_tokens():
    row = spoken(("it is 57", [], "it is 57"))
    row["messages"].insert(0, {"role": "assistant", "content": "something else altogether", "tool_calls": []})
    tokenizer = Tokenizer(WordLevel({word: number for number, word in enumerate(WORDS)}, unk_token="<s>"))
    assert fault_of(row, tokenizer, len(WORDS)) is None
