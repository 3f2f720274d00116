"""Reading samples: what is trained on, and what is filtered for which reason."""

import math

import numpy as np
import pyarrow as pa
import pytest

from clawpipe.core.config.training import Train
from clawpipe.core.contracts.schema import schema_of
from clawpipe.core.store.datasets import write_parquet
from clawpipe.errors import DataError
from clawpipe.learn.training.data.rows import Sample, StoredRows, groups_of, of_groups
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


def a_row(number: int) -> Sample:
    """A row of another length each; every third one has teachers' log-probs as well, of two tokens at each place."""
    n = number % 4 + 1
    streams = {"behaviour": -np.arange(n, dtype=np.float32)}
    more = {"top_teacher": np.full((n, 2), -0.5 - number, np.float64)} if number % 3 == 0 else {}
    ids = np.arange(number, number + n + 2, dtype=np.int32)
    return Sample(f"group-{number // 2}", ids, np.arange(1, n + 1), 0.8, 1.0 / (number + 1), streams | more)


def same(one: Sample, other: Sample) -> bool:
    arrays = [(row.token_ids, row.trained, *row.streams.values()) for row in (one, other)]
    alike = all(np.array_equal(a, b) and a.dtype == b.dtype for a, b in zip(*arrays, strict=True))
    plain = [(row.group, row.temperature, row.weight, row.imitated, list(row.streams)) for row in (one, other)]
    return alike and plain[0] == plain[1]


def test_rows_in_a_file_are_the_rows_that_were_written():
    rows = [a_row(number) for number in range(20)]
    stored = StoredRows.of(iter(rows))
    assert len(stored) == 20
    assert all(map(same, stored, rows))
    assert same(stored[-1], rows[-1])
    assert [row.group for row in stored[1::7]] == [row.group for row in rows[1::7]]
    assert list(groups_of(stored[::3])) == [row.group for row in rows[::3]]
    kept = [of_groups(some, {"group-0", "group-9"}.__contains__) for some in (stored, rows)]
    assert len(kept[0]) == 4
    assert all(map(same, *kept))
    with pytest.raises(IndexError):
        stored[20]


def test_token_scores_in_another_order_belong_to_their_rows(tmp_path):
    names = [f"t{number}" for number in range(3)]
    rows = [GOOD | {"trajectory_id": name} for name in names]
    write_parquet(pa.Table.from_pylist(rows, SCHEMA.append(pa.field("trajectory_id", pa.string()))), tmp_path / "samples.parquet")
    nothing = dict.fromkeys(("proximal", "teacher", "top_k", "top_tokens", "top_teacher", "hint", "taught"))
    scores = [{"row_id": name, "reference": [-float(number)] * 2, **nothing} for number, name in enumerate(names)]
    schema = schema_of("token_scores")
    write_parquet(pa.Table.from_pylist([scores[2], scores[0], scores[1]], schema), tmp_path / "scores.parquet")
    files = [str(tmp_path / f"{name}.parquet") for name in ("samples", "scores")]
    loaded, _ = load_samples(files[:1], Train.model_validate({"method": "grpo", "loss": {"kl_coef": 0.1}}), 1.0, files[1:])
    assert [row.streams["reference"].tolist() for row in loaded] == [[0.0, 0.0], [-1.0, -1.0], [-2.0, -2.0]]
