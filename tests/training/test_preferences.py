"""Reading preference pairs: what is trained on, what is filtered for which reason, and which pack it goes into."""

import json
import math

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clawpipe.core.contracts.schema import schema_of
from clawpipe.core.store.datasets import write_parquet
from clawpipe.errors import ConfigError, DataError
from clawpipe.learn.training.data.packing import build_pack
from clawpipe.learn.training.data.pairs import are_text_only, load_pairs, plan_pairs
from clawpipe.learn.training.data.samples import Readable, Sample
from clawpipe.learn.training.metrics import METRICS

SIDES = ("chosen", "rejected")
GOOD = {
    "pair_id": "p",
    "item_id": "i",
    "group_id": "g",
    "strategy": "all-margin",
    "margin": 1.0,
    "chosen_id": "a",
    "rejected_id": "b",
    "policy_version": "v",
    "renderer_digest": "r",
    "prompt_tokens": 2,
    "chosen_token_ids": [5, 6, 7, 8, 9, 4],
    "chosen_loss_mask": [False, False, True, False, True, False],
    "rejected_token_ids": [5, 6, 3],
    "rejected_loss_mask": [False, False, True],
    "temperature": 0.8,
    "weight": 1.0,
    "tokens": "recorded",
}
TEXT = GOOD | {"tokens": "none", "temperature": 0.0, "prompt_tokens": 0}
TEXT |= {f"{side}_{stream}": [] for side in SIDES for stream in ("token_ids", "loss_mask")}


@pytest.fixture
def stored(tmp_path):
    """stored(pairs, reference): a file of pairs numbered p0, p1 ..., and one of log-probs by row_id."""

    def write(pairs, reference=None):
        pairs = [pair | {"pair_id": f"p{number}"} for number, pair in enumerate(pairs)]
        default = {f"{pair['pair_id']}/{side}": [-1.0] * sum(pair[f"{side}_loss_mask"]) for pair in pairs for side in SIDES}
        scores = [{"row_id": row_id, "reference": values} for row_id, values in (default | (reference or {})).items()]
        files = {"preference_pairs": pairs, "token_scores": scores}
        for name, rows in files.items():
            write_parquet(pa.Table.from_pylist(rows, schema_of(name)), tmp_path / f"{name}.parquet")
        return [[str(tmp_path / f"{name}.parquet")] for name in files]

    return write


def test_a_pair_is_two_neighbouring_rows(stored):
    files = stored([GOOD], {"p0/chosen": [-1.0, -2.0], "p0/rejected": [-3.0]})
    (chosen, rejected), filtered = load_pairs(*files, 1.0)
    assert filtered == {}
    assert (chosen.token_ids.tolist(), rejected.token_ids.tolist()) == ([5, 6, 7, 8, 9, 4], [5, 6, 3])
    assert (chosen.trained.tolist(), rejected.trained.tolist()) == ([2, 4], [2])
    assert (chosen.streams["reference"].tolist(), rejected.streams["reference"].tolist()) == ([-1, -2], [-3])
    assert (
        (chosen.group, chosen.temperature, chosen.weight)
        == (rejected.group, rejected.temperature, rejected.weight)
        == ("g", 0.8, 1)
    )


def test_a_token_unknown_to_the_policy_filters_its_pair(stored):
    files = stored([GOOD, GOOD | {"rejected_token_ids": [5, 6, 300]}])
    assert len(load_pairs(*files, 1.0, readable=Readable(301))[0]) == 4
    rows, filtered = load_pairs(*files, 1.0, readable=Readable(300))
    assert (len(rows), filtered) == (2, {"token_beyond_the_vocabulary": 1})


def test_a_pair_with_a_side_longer_than_may_be_is_filtered(stored):
    files = stored([GOOD])
    sides = [len(GOOD[f"{side}_token_ids"]) for side in SIDES]
    assert len(load_pairs(*files, 1.0, readable=Readable(longest=max(sides)))[0]) == 2
    with pytest.raises(DataError, match="too_long"):
        load_pairs(*files, 1.0, readable=Readable(longest=max(sides) - 1))


def test_bad_pairs_are_filtered_whole_and_by_reason(stored):
    pairs = [
        GOOD,
        GOOD | {"chosen_loss_mask": [False, False, True]},
        GOOD | {"rejected_loss_mask": [False, False, True, True]},
        GOOD | {"rejected_loss_mask": [False] * 3},
        GOOD | {"chosen_loss_mask": [True, False, False, False, False, False]},
        GOOD | {"rejected_token_ids": [5, 1, 3]},
        GOOD | {"weight": math.inf},
        GOOD,
        GOOD,
        GOOD,
        GOOD,
        TEXT,
    ]
    reference = {
        "p7/chosen": [math.nan, -1.0],
        "p8/rejected": None,
        "p9/chosen": [-1.0],
        "p10/rejected": [-1.0, -1.0],
    }
    rows, filtered = load_pairs(*stored(pairs, reference), 1.0)
    assert len(rows) == 2
    assert filtered == {
        "lengths_differ": 2,
        "no_trained_tokens": 1,
        "first_token_has_no_predecessor": 1,
        "prompts_differ": 1,
        "not_finite": 2,
        "token_scores_missing": 3,
        "text_only_beside_recorded_pairs": 1,
    }
    assert len(rows) // 2 + sum(filtered.values()) == len(pairs)


def test_a_pair_that_nobody_scored_is_filtered(stored):
    pairs, scores = stored([GOOD])
    with pytest.raises(DataError, match="token_scores_missing"):
        load_pairs(pairs, [], 1.0)
    (chosen, _), _ = load_pairs(pairs, scores, 1.0)
    assert len(chosen.trained) == 2


def test_a_method_without_a_reference_needs_no_scores(stored):
    pairs, scores = stored([GOOD])
    compared, _ = load_pairs(pairs, scores, 1.0)
    alone, filtered = load_pairs(pairs, None, 1.0)
    assert not filtered
    assert [row.streams for row in alone] == [{}, {}]
    assert [row.trained.tolist() for row in alone] == [row.trained.tolist() for row in compared]


def test_a_pair_without_a_temperature_gets_the_one_given(stored):
    (chosen, rejected), _ = load_pairs(*stored([GOOD | {"temperature": 0.0}]), 0.7)
    assert chosen.temperature == rejected.temperature == 0.7


@pytest.mark.parametrize(("pairs", "expected"), [([TEXT, TEXT], True), ([TEXT, GOOD], False), ([GOOD], False)])
def test_one_recorded_pair_makes_a_recorded_dataset(stored, pairs, expected):
    assert are_text_only(stored(pairs)[0]) is expected


def test_a_missing_file_is_a_data_error(tmp_path):
    with pytest.raises(DataError, match="cannot be read"):
        load_pairs([str(tmp_path / "none.parquet")], [], 1.0)


def _rows(sizes):
    """Groups of pairs that share a preamble, a question and, within a group, the chosen side."""
    one = np.ones(2, np.float32)

    def row(group, *answer):
        return Sample(f"g{group}", np.array([1, 2, 3, 100 + group, *answer]), np.array([4, 5]), 1.0, 1.0, {"reference": one})

    return [
        side
        for group, size in enumerate(sizes)
        for pair in range(size)
        for side in (row(group, 7, 8, 9), row(group, 20 + pair, 30 + pair, 9))
    ]


@given(
    st.lists(st.integers(1, 5), min_size=1, max_size=7),
    st.integers(1, 5),
    st.integers(4, 40),
    st.integers(0, 3),
    st.integers(1, 3),
    st.booleans(),
)
@settings(deadline=None)
def test_a_plan_trains_every_pair_once_and_splits_none(sizes, updates, limit, seed, epochs, share):
    rows = _rows(sizes)
    plan = plan_pairs(rows, limit, updates, seed, epochs, share)
    per_epoch = min(updates, len(sizes))
    assert len(plan) == per_epoch * epochs
    assert len({len(update) for update in plan}) == 1
    for epoch in range(epochs):
        part = plan[epoch * per_epoch : (epoch + 1) * per_epoch]
        assert sorted(index for update in part for pack in update for index in pack) == list(range(len(rows)))
        homes = [{rows[index].group for pack in update for index in pack} for update in part]
        assert sum(len(home) for home in homes) == len(sizes)
    for pack in (pack for update in plan for pack in update if pack):
        assert [index + 1 for index in pack[0::2]] == pack[1::2]
        assert all(index % 2 == 0 for index in pack[0::2])
        assert len(pack) == 2 or build_pack([rows[index] for index in pack], share)["input_ids"].numel() <= limit
    assert plan == plan_pairs(rows, limit, updates, seed, epochs, share)


def test_pairs_of_a_group_share_prompt_and_chosen_side():
    """Preamble and question 4, the chosen side 1 more than that is read, three rejected ones 1 each; three pairs fit 8 tokens."""
    (update,) = plan_pairs(_rows([3]), 8, 1, seed=0)
    assert update == [[0, 1, 2, 3, 4, 5]]
    assert build_pack(_rows([3]))["input_ids"].numel() == 8
    assert len(plan_pairs(_rows([3]), 7, 1, seed=0)[0]) == 2


def test_a_request_trains_pairs_and_counts_them(request_for, here, stored):
    """Pairs, not rows, add up to what was given; both ways of packing end with the same loss."""
    pairs = [GOOD | {"group_id": f"g{number % 3}", "rejected_token_ids": [5, 6, 10 + number]} for number in range(6)]
    samples, scores = stored([*pairs, TEXT, GOOD], {"p7/chosen": None})
    losses = []
    for share in (True, False):
        train = {"method": "dpo", "share_prefixes": share, "validation": 0.3, "epochs": 1, "lora": {"rank": 4, "alpha": 8}}
        outcome = here(request_for(f"share-{share}", train, samples=samples, token_scores=scores))
        summary = json.loads((outcome / "summary.json").read_text())
        unusable = {"text_only_beside_recorded_pairs": 1, "token_scores_missing": 1}
        assert summary["filtered"] == unusable | {"kept_for_validation": 2}
        assert (summary["samples"], summary["held_out"], summary["steps"]) == (4, 2, 3)
        assert summary["last"].keys() >= {"margin", "accuracy", "nll", "validation_loss"}
        assert summary["last"].keys() <= METRICS.keys()
        losses.append((summary["last"]["loss"], summary["last"]["validation_loss"]))
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)


def test_pairs_without_token_scores_are_refused(request_for, here, stored):
    with pytest.raises(ConfigError, match="annotate the rows first"):
        here(request_for("one", {"method": "dpo"}, samples=stored([GOOD])[0], token_scores=[]))
