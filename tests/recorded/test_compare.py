"""Recorded log-probs beside a policy's own, with a real worker; the figures once more with the engine in this process."""

from dataclasses import replace

import numpy as np
import pytest

from clawpipe.core.config.night import Runtime
from clawpipe.errors import DataError
from clawpipe.model.engines.embedded import EmbeddedEngine
from clawpipe.model.policy.base import resolve_base
from clawpipe.play.recorded.agreement import FAR
from clawpipe.play.recorded.compare import SAMPLE, compare_recorded, named_policies
from tasks.recorded import check_recorded, recompute_logprobs

BASE = "random"


@pytest.fixture
def compare(store, pool, base, published):
    """compare(rows): the result for samples of these rows, under a night that starts from the base."""

    def run(rows, start=base, known=()):
        return compare_recorded(store, pool, published(rows, "samples"), start, base, known)

    return run


def figures(rows, own):
    """Mean distance and mean ratio over sampled tokens."""
    gaps = np.array(
        [
            a - b
            for row, values in zip(rows, own, strict=True)
            for a, b, m in zip(values, row["logprobs"], row["loss_mask"], strict=True)
            if m
        ]
    )
    return np.abs(gaps).mean(), np.exp(gaps).mean()


def test_what_a_policy_sampled_agrees_with_it(compare, talks, base):
    rows = talks.sampled(6, 0.7)
    result = compare(rows)
    [(version, found)] = result.details["versions"].items()
    assert (version, found["scored_by"], found["rows"]) == (base.policy_version, base.policy_version, 6)
    assert found["tokens"] == sum(sum(row["loss_mask"]) for row in rows)
    assert found["difference"] < 1e-4
    assert found["ratio"] == pytest.approx(1, abs=1e-4)
    assert (result.rows_in, result.rows_out, result.details["warnings"]) == (6, 6, [])


def test_raw_log_probs_declared_tempered_are_an_error(compare, talks, base):
    rows = talks.sampled(16, 0.4)
    tempered = [row["logprobs"] for row in rows]
    rows = [row | {"logprobs": talks.raw(row)} for row in rows]
    distance, ratio = figures(rows, tempered)
    with pytest.raises(
        DataError, match=f"by policy {base.policy_version} are {distance:.2f} nats per token from its own"
    ) as refused:
        compare(rows)
    assert f"mean ratio {ratio:.3g}" in str(refused.value)
    assert refused.value.exit_code == 65


@pytest.mark.parametrize("temperature", [0.7, 0.9])
def test_a_temperature_that_is_off_by_a_tenth_is_an_error(compare, talks, temperature):
    rows = [row | {"temperature": temperature} for row in talks.sampled(16, 0.8)]
    with pytest.raises(DataError, match=r"from its own .* of 16 rows are off\).* per nat, as at another temperature"):
        compare(rows)


def test_half_of_the_rows_being_raw_is_an_error(compare, talks):
    rows = [row | ({"logprobs": talks.raw(row)} if number % 2 else {}) for number, row in enumerate(talks.sampled(16, 0.8))]
    with pytest.raises(DataError, match="of 16 rows are off"):
        compare(rows)


def test_an_engine_in_bfloat16_agrees(compare, talks, base):
    path = resolve_base(BASE).path
    narrow = replace(talks, engine=EmbeddedEngine(path, None, "bfloat16", "cpu"))
    [found] = compare(narrow.sampled(16, 0.8)).details["versions"].values()
    assert 1e-3 < found["difference"] < 0.05
    assert abs(found["tilt"]) < 0.02
    assert (found["rows"], found["rows_off"]) == (16, 0)


@pytest.mark.parametrize("version", ["unnamed", None])
def test_log_probs_that_are_no_measurement_are_no_staleness(compare, talks, version):
    """Of a policy that is here, and of one that is not."""
    zeros = [row | {"logprobs": [0.0] * len(row["token_ids"])} for row in talks.sampled(4, 1.0)]
    with pytest.raises(DataError, match="nats per token from"):
        compare([row | ({"policy_version": version} if version else {}) for row in zeros])


def test_a_missing_policy_gives_a_warning(compare, talks, base):
    rows = [row | {"policy_version": "gone"} for row in talks.sampled(4, 1.0)]
    moved = [
        row | {"logprobs": [value - 0.5 * m for value, m in zip(row["logprobs"], row["loss_mask"], strict=True)]} for row in rows
    ]
    assert FAR > 0.5
    result = compare(moved)
    assert result.details["versions"]["gone"]["scored_by"] == base.policy_version
    [warning] = result.details["warnings"]
    assert warning.startswith("policy gone is not here: the log-probs of its rows are 0.50 nats per token")
    assert "1.65" in warning  # exp(0.5)


def test_each_version_is_scored_by_itself_wherever_it_is(compare, talks, base, trained, store):
    rows = talks.sampled(3, 1.0)
    theirs = [row | {"trajectory_id": f"x{number}", "policy_version": trained.policy_version} for number, row in enumerate(rows)]
    assert named_policies(store, [trained.policy_version, "gone"], [base], base) == {trained.policy_version: trained}
    with pytest.raises(DataError, match=f"by policy {trained.policy_version} are"):
        compare([*rows, *theirs])
    with pytest.raises(DataError, match=f"by policy {trained.policy_version} are"):
        compare([*rows, *theirs], start=trained)


@pytest.mark.parametrize("step", [recompute_logprobs, check_recorded], ids=lambda step: step.name)
def test_a_kept_result_ends_when_its_missing_policy_is_back(step, store, base, trained, published, talks, tmp_path, monkeypatch):
    """The store is no part of a step's key, so a result says which policies it missed."""
    monkeypatch.setenv("CLAWPIPE_HOME", str(tmp_path))
    policy, away = store.path(trained), tmp_path / "away"
    policy.rename(away)
    rows = [row | {"policy_version": trained.policy_version, "logprobs_kind": "raw"} for row in talks.sampled(2, 0.5)]
    facts = {"start": base, "base": base, "known": [], "runtime": Runtime(device="cpu", workers=1)}
    facts |= {"samples": published(rows, "samples")} if step is check_recorded else {"trajectories": published(rows)}
    facts |= {} if step is check_recorded else {"text": False, "max_tokens": 4096}
    result = step.function(**facts)
    assert step.holds(result)
    assert not result.details.get("log-probs recomputed")
    away.rename(policy)
    assert not step.holds(result)


def test_only_a_fixed_sample_of_rows_is_scored(compare, talks):
    row = talks.sampled(1, 1.0)[0]
    many = [row | {"trajectory_id": f"t{number}"} for number in range(SAMPLE + 8)]
    first, second = compare(many), compare(list(reversed(many)))
    assert first.details == second.details
    assert [found["rows"] for found in first.details["versions"].values()] == [SAMPLE]
