"""What log-probs are of, and the one bound on what they may be."""

import math

import pytest

from clawpipe.core.contracts.logprobs import HIGHEST, LOWEST, default_temperature, kind_by_temperatures, kind_of, temperature_of
from clawpipe.core.contracts.validate import validate


@pytest.mark.parametrize(
    ("kind", "source", "meant"),
    [("raw", "rollout", "raw"), (None, "rollout", "tempered"), (None, "imported", "unknown"), (None, "captured", "unknown")],
)
def test_rows_of_older_versions_mean_what_they_meant(kind, source, meant):
    assert kind_of(kind, source) == meant


@pytest.mark.parametrize(
    ("kind", "sampled_at", "of"),
    [("tempered", 0.8, 0.8), ("raw", 0.8, 1.0), ("unknown", 1.0, 1.0), ("unknown", 0.8, None), ("none", 1.0, None)],
)
def test_the_temperature_of_a_log_prob_follows_from_its_kind(kind, sampled_at, of):
    assert temperature_of(kind, sampled_at) == of


@pytest.mark.parametrize(
    ("logprob", "kept"), [(HIGHEST * 0.99, 1), (HIGHEST * 1.01, 0), (1e-7, 1), (40.0, 0), (LOWEST * 0.99, 1), (LOWEST * 1.01, 0)]
)
def test_the_contract_has_the_bound_that_everybody_has(valid, publish, store, logprob, kept):
    row = valid("trajectories", logprobs=[0.0, 0.0, 0.0, 0.0, logprob, -1.5, 0.0, -2.5])
    assert validate(store, publish("trajectories", [row]), "trajectories").rows_out == kept


def test_an_id_below_0_costs_its_row_alone(valid, publish, store):
    rows = [valid("trajectories"), valid("trajectories", trajectory_id="bad", token_ids=[1, 2, 3, 4, -5, 6, 7, 8])]
    result = validate(store, publish("trajectories", rows), "trajectories")
    assert (result.rows_out, result.filtered) == (1, {"token_ids[]: below 0": 1})


def at(temperature: float, *logits: float) -> dict[str, float]:
    total = math.log(sum(math.exp(value / temperature) for value in logits))
    return {str(place): value / temperature - total for place, value in enumerate(logits)}


def test_the_kind_of_log_probs_shows_at_another_temperature():
    assert kind_by_temperatures(at(1, 3, 1, 0), at(2, 3, 1, 0)) == "tempered"
    assert kind_by_temperatures(at(1, 3, 1, 0), at(1, 3, 1, 0)) == "raw"
    assert kind_by_temperatures(at(1, 1, 1, 1), at(2, 1, 1, 1)) == "unknown"  # every temperature gives a third
    assert kind_by_temperatures({}, {}) == "unknown"


def test_the_default_temperature_is_a_ratio_of_differences():
    assert default_temperature(at(1, 3, 1, 0), at(0.7, 3, 1, 0)) == 0.7
