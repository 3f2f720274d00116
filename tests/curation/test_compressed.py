"""Rows that were shortened keep their scores on the right turns, and held-out questions in what was cut are found."""

from __future__ import annotations

import json

import pytest

from clawpipe.core.config.curation import Compress, Curation
from clawpipe.core.config.night import NightConfig
from clawpipe.core.store.datasets import read_dataset
from clawpipe.play.recorded.notes import NOTE
from tests.curation.conftest import message


def test_compression_is_refused_where_ratios_are_taken():
    for method in ("grpo", "ppo", "opd", "combine"):
        with pytest.raises(ValueError, match=f"curation.compress is not for {method}, which takes ratios of recorded tokens"):
            NightConfig(curation=Curation(compress=Compress()), train={"method": method})
    for method in ("sft", "dpo", "kto"):
        assert NightConfig(curation=Curation(compress=Compress()), train={"method": method}).curation.budget == 4096


@pytest.mark.parametrize("pairs", [{"corrections": True}, {"strategy": "same-prefix"}])
def test_pairs_of_turns_are_not_compared_in_cut_contexts(pairs):
    with pytest.raises(ValueError, match=r"curation\.compress cuts what such pairs"):
        NightConfig(curation={"compress": {}, "pairs": pairs}, train={"method": "dpo"})


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"max_tokens": 5000}, "exceeds `max_tokens`"),
        ({"by": "endpoint"}, "needs `url` and `model`"),
        ({"url": "http://127.0.0.1:1/v1"}, "have no effect by rule"),
        ({"keep_first": 0}, "greater than or equal to 1"),
    ],
)
def test_settings_that_cannot_work_are_refused(settings, why):
    with pytest.raises(ValueError, match=why):
        Curation(compress=settings)


def test_an_unused_block_is_in_no_key():
    assert "compress" not in Curation().result_fields()
    assert "compress" in Curation(compress=Compress()).result_fields()
    assert json.dumps(NOTE) == '"compressed_by_clawpipe"'  # the SQL macros name it


def shortened(tables, note: dict, **fields) -> None:
    """A text of three turns, of which the second one was cut."""
    talk = [("user", "q"), ("assistant", "one"), ("user", "[Summary]"), ("user", "r"), ("assistant", "three")]
    row = {
        "source": "imported",
        "tokens": "none",
        "token_ids": [],
        "loss_mask": [],
        "logprobs": [],
        "turns": [],
        "prompt_tokens": 0,
    }
    row |= {"rendered_ids": [1, 2, 3, 4], "rendered_mask": [False, True, False, True], "kinds": ["main", "main"]}
    row |= {"messages": [message(*one) for one in talk], "extra": json.dumps({NOTE: note})}
    tables.rollout("i", 0, None, **row | fields)
    tables.score("i-0", 1.0)


def trained(tables, **config) -> list[list[float]]:
    done = tables.curate("sft", compress=Compress(), **config)
    return [row["advantages"] for row in read_dataset(tables.store, done.output).to_pylist()]


def test_a_score_stays_on_its_turn_when_earlier_ones_are_cut(tables):
    shortened(tables, {"turns": [0, 2], "asked": []})
    tables.score("i-0", -1.0, turn=2, scorer="judge/x", origin="judge")
    tables.score("i-0", -1.0, turn=1, scorer="judge/x", origin="judge")  # of a turn that is gone
    assert trained(tables) == [[0.0, 1.0, 0.0, 0.0]]


def test_a_heldout_question_in_the_part_that_was_cut_is_found(tables):
    tables.item("h", "What is the capital of the moon and of the sun?", split="heldout")
    shortened(tables, {"turns": [0, 2], "asked": ["What is the capital of the moon and of the sun?"]})
    assert tables.curate("sft", compress=Compress()).filtered == {"held-out question": 1}


@pytest.mark.parametrize("note", [None, 7, {}, {"turns": "x", "asked": 3}, {"turns": [0.5, None], "asked": [[1]]}])
def test_a_note_of_another_form_is_no_note(tables, note):
    shortened(tables, note)
    assert trained(tables) == [[0.0, 1.0, 0.0, 1.0]]
