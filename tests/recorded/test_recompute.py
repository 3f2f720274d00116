"""Log-probs asked of the policy that is named, for rows whose own cannot be used."""

import numpy as np
import pytest

from clawpipe.core.contracts.validate import validate
from clawpipe.core.store.datasets import read_dataset
from clawpipe.errors import DataError
from clawpipe.play.recorded.recompute import RECORDED, TEXT, recompute_logprobs


@pytest.fixture
def recompute(store, pool, base, published):
    def run(rows, start=base, text=True, max_tokens=4096):
        result = recompute_logprobs(store, pool, published(rows), start, base, (), text=text, max_tokens=max_tokens)
        assert validate(store, result.dataset, "trajectories").filtered == {}
        return result, read_dataset(store, result.dataset).to_pylist()

    return run


def raw(talks, row, **fields):
    return row | {"logprobs": talks.raw(row), "logprobs_kind": "raw"} | fields


def test_raw_log_probs_become_those_at_the_sampling_temperature(recompute, talks):
    rows = talks.sampled(4, 0.5)
    result, found = recompute([raw(talks, row) for row in rows])
    assert result.details == {RECORDED: 4, TEXT: 0}
    for row, again in zip(rows, found, strict=True):
        assert again["logprobs_kind"] == "tempered"
        np.testing.assert_allclose(again["logprobs"], row["logprobs"], atol=1e-5)
        assert {name: again[name] for name in ("token_ids", "loss_mask", "temperature")} == {
            name: row[name] for name in ("token_ids", "loss_mask", "temperature")
        }


def test_what_is_fine_or_cannot_be_helped_stays_as_it_is(recompute, talks, published):
    row = talks.sampled(1, 0.5)[0]
    rows = [
        row | {"trajectory_id": "tempered"},
        raw(talks, row, trajectory_id="raw at 1", temperature=1.0) | {"trajectory_id": "raw-at-1"},
        raw(talks, row, trajectory_id="gone", policy_version="gone", group_id="i0/gone"),
        row | {"trajectory_id": "nobody-knows", "logprobs_kind": "none", "temperature": 1.0},
    ]
    result, _ = recompute(rows)
    assert result.dataset == published(rows)


def absent(row, **fields):
    return row | {"logprobs": [0.0] * len(row["logprobs"]), "logprobs_kind": "none"} | fields


def test_absent_log_probs_come_from_the_policy_that_is_named(recompute, talks):
    rows = talks.sampled(2, 0.5)
    result, found = recompute([absent(row, extra='{"sampled_at":0.5}') for row in rows])
    assert result.details == {RECORDED: 2, TEXT: 0}
    for row, again in zip(rows, found, strict=True):
        assert again["logprobs_kind"] == "tempered"
        np.testing.assert_allclose(again["logprobs"], row["logprobs"], atol=1e-5)


def test_absent_log_probs_at_an_unknown_temperature_stay_absent(recompute, talks, published):
    row = talks.sampled(1, 0.5)[0]
    rows = [absent(row, extra=None), absent(row, trajectory_id="t1", extra='{"label":"sampled_at"}')]
    assert recompute(rows)[0].dataset == published(rows)


def test_raw_log_probs_of_another_policy_end_the_night(recompute, talks, trained):
    rows = [
        raw(talks, row, policy_version=trained.policy_version, group_id=f"{row['item_id']}/{trained.policy_version}")
        for row in talks.sampled(4, 0.5)
    ]
    with pytest.raises(DataError, match=f"by policy {trained.policy_version} are"):
        recompute(rows)


def test_text_gets_log_probs_of_the_policy_in_training(recompute, talks, base):
    row = talks.sampled(1, 0.5)[0]
    empty = {"token_ids": [], "loss_mask": [], "logprobs": [], "turns": [], "prompt_tokens": 0, "temperature": 0.0}
    text = row | empty | {"tokens": "none", "logprobs_kind": None, "kinds": ["main"]}
    text |= {"rendered_ids": row["token_ids"], "rendered_mask": row["loss_mask"]}
    result, [found, long] = recompute(
        [text, text | {"trajectory_id": "long", "rendered_ids": row["token_ids"] * 9, "rendered_mask": row["loss_mask"] * 9}],
        max_tokens=99,
    )
    assert result.details == {RECORDED: 0, TEXT: 1}
    np.testing.assert_allclose(found["rendered_logprobs"], talks.raw(row), atol=1e-5)
    assert (found["rendered_policy"], found["tokens"], found["logprobs"]) == (base.policy_version, "none", [])
    assert (long["rendered_logprobs"], long["rendered_policy"]) == (None, None)
    unasked, _ = recompute([text], text=False)
    assert unasked.details == {}
