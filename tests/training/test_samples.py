"""Reading samples: what is trained on, and what is filtered for which reason."""

import math

import pyarrow as pa
import pytest

from clawpipe.core.config.training import Train
from clawpipe.core.store.datasets import write_parquet
from clawpipe.errors import DataError
from clawpipe.learn.training.data.samples import Readable, load_samples

SCHEMA = pa.schema(
    [
        ("group_id", pa.string()),
        ("token_ids", pa.list_(pa.int32())),
        ("loss_mask", pa.list_(pa.bool_())),
        ("logprobs", pa.list_(pa.float32())),
        ("advantages", pa.list_(pa.float32())),
        ("temperature", pa.float64()),
        ("weight", pa.float64()),
    ]
)
GOOD = {
    "group_id": "g",
    "token_ids": [5, 6, 7, 8],
    "loss_mask": [False, True, False, True],
    "logprobs": [0.0, -1.0, 0.0, -2.0],
    "advantages": [0.0, 0.5, 0.0, -0.5],
    "temperature": 0.8,
    "weight": 1.0,
}


@pytest.fixture
def stored(tmp_path):
    def write(*rows):
        path = tmp_path / "samples.parquet"
        write_parquet(pa.Table.from_pylist(list(rows), SCHEMA), path)
        return [str(path)]

    return write


def test_a_row_keeps_its_trained_tokens_only(stored):
    (sample,), filtered = load_samples(stored(GOOD), Train(), 1.0)
    assert filtered == {}
    assert sample.token_ids.tolist() == [5, 6, 7, 8]
    assert sample.trained.tolist() == [1, 3]
    assert sample.streams["behaviour"].tolist() == [-1, -2]
    assert sample.streams["advantages"].tolist() == [0.5, -0.5]
    assert (sample.group, sample.temperature, sample.weight) == ("g", 0.8, 1.0)


def test_bad_rows_are_filtered_by_reason(stored):
    rows = [
        GOOD,
        GOOD | {"logprobs": [0.0, math.nan, 0.0, -2.0]},
        GOOD | {"advantages": [0.0, math.inf, 0.0, -0.5]},
        GOOD | {"loss_mask": [False] * 4},
        GOOD | {name: [] for name in ("token_ids", "loss_mask", "logprobs", "advantages")},
        GOOD | {"loss_mask": [True, True, False, True]},
        GOOD | {"logprobs": [0.0, -1.0]},
    ]
    samples, filtered = load_samples(stored(*rows), Train(), 1.0)
    assert len(samples) == 1
    assert filtered == {"not_finite": 2, "no_trained_tokens": 2, "first_token_has_no_predecessor": 1, "lengths_differ": 1}
    assert len(samples) + sum(filtered.values()) == len(rows)


def test_sft_trains_on_good_tokens_and_ignores_missing_log_probs(stored):
    unknown = GOOD | {"logprobs": [math.nan] * 4, "temperature": 0.0}
    bad = GOOD | {"advantages": [0.0, -1.0, 0.0, -1.0]}
    short = GOOD | {"advantages": [1.0]}
    (sample,), filtered = load_samples(stored(unknown, bad, short), Train(method="sft"), 0.7)
    assert sample.trained.tolist() == [1]
    assert sample.temperature == 0.7
    assert filtered == {"no_trained_tokens": 1, "lengths_differ": 1}


def test_nothing_to_train_on_is_a_data_error(stored):
    with pytest.raises(DataError, match="no sample remains"):
        load_samples(stored(GOOD | {"loss_mask": [False] * 4}), Train(), 1.0)


def test_a_missing_file_is_a_data_error(tmp_path):
    with pytest.raises(DataError, match="cannot be read"):
        load_samples([str(tmp_path / "none.parquet")], Train(), 1.0)


def test_bad_ids_and_log_probs_filter_only_their_rows(stored):
    """Once an id beyond the vocabulary ended the run with a traceback, and log-probs up to +40 were trained on."""
    rows = [
        GOOD,
        GOOD | {"token_ids": [5, 6, 10, 8]},
        GOOD | {"token_ids": [5, -6, 7, 8]},
        GOOD | {"logprobs": [0.0, 40.0, 0.0, -2.0]},
        GOOD | {"logprobs": [0.0, 1e-7, 0.0, -2.0]},
        GOOD | {"logprobs": [0.0, -2e4, 0.0, -2.0]},
    ]
    samples, filtered = load_samples(stored(*rows), Train(), 1.0, readable=Readable(10))
    assert (len(samples), filtered) == (2, {"token_beyond_the_vocabulary": 2, "logprob_out_of_range": 2})


def test_a_row_longer_than_the_model_reads_filters_itself(stored):
    longer = {name: [*values, values[-1]] for name, values in GOOD.items() if isinstance(values, list)}
    samples, filtered = load_samples(stored(GOOD, GOOD | longer), Train(), 1.0, readable=Readable(longest=len(GOOD["token_ids"])))
    assert (len(samples), filtered) == (1, {"too_long": 1})
