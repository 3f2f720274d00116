"""Log-probs padded with zeros are bad data, reported with figures in one line."""

from functools import partial

import numpy as np
import pyarrow.parquet as pq
import pytest

from clawpipe.core.store.datasets import write_parquet
from clawpipe.errors import DataError
from clawpipe.learn.training.model.build import build_model
from clawpipe.learn.training.model.likelihoods import require_likely_zeros
from clawpipe.learn.training.run import score_rows


def test_zeros_that_were_filled_in_are_bad_data(here, tmp_path, request_for):
    """The policy gives each of 300 tokens about -5.7; the mean ratio of such a run was 0.004."""
    request = request_for("padded")
    rows = [row | {"logprobs": [0.0] * 19} for row in pq.read_table(request.samples[0]).to_pylist()]
    path = tmp_path / "padded.parquet"
    write_parquet(pq.read_table(request.samples[0]).from_pylist(rows), path)
    padded = request.model_copy(update={"samples": (str(path),)})
    with pytest.raises(DataError, match=r"7 of its 7 log-probs are recorded as exactly 0.* -\d\.\d\d nats on average") as error:
        here(padded)
    assert error.value.exit_code == 65
    assert "\n" not in error.value.what
    assert error.value.where.startswith("a row of group g")
    here(padded.model_copy(update={"config": padded.config.model_copy(update={"method": "sft"})}))  # which reads none


def test_zeros_of_a_turn_alone_are_found_too(request_for, make_sample):
    model = build_model(request_for("run"))
    generator = np.random.default_rng(0)
    rows = [make_sample(generator.integers(0, 300, 20), range(10, 19), [-5.7] * 5 + [0.0] * 4) for _ in range(3)]
    with pytest.raises(DataError, match="4 of its 9 log-probs"):
        require_likely_zeros(rows, partial(score_rows, request_for("run"), model))
    require_likely_zeros(rows[:1], partial(score_rows, request_for("run"), model))  # four may be chance


def test_a_policy_that_is_sure_may_say_zero(request_for, make_sample):
    """A token to which the policy gives all probability has a log-prob of exactly 0."""
    model = build_model(request_for("run", train={"adapter": "full"}))
    model.get_output_embeddings().weight.data.mul_(1e4)  # the likeliest token is now certain
    rows = []
    for start in range(4):
        ids = [start, 5]
        for _ in range(6):
            ids.append(int(model(input_ids=model.dummy_inputs["input_ids"].new_tensor([ids])).logits[0, -1].argmax()))
        rows.append(make_sample(ids, range(2, 8), 0.0))
    require_likely_zeros(rows, partial(score_rows, request_for("run"), model))
