"""Rows that no policy sampled, beside rows with ratios: their loss, weights and metrics against float64 row by row."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch

from clawpipe.core.config.training import Loss, Opd, Ppo, Train
from clawpipe.core.contracts.schema import schema_of
from clawpipe.core.store.artifacts import Store
from clawpipe.core.store.datasets import publish_dataset, write_parquet
from clawpipe.learn.training.data.rows import StoredRows
from clawpipe.learn.training.data.samples import Sample, load_samples
from clawpipe.learn.training.losses.batch import PolicyObjective
from clawpipe.learn.training.losses.gae import with_advantages
from clawpipe.learn.training.model.likelihoods import require_likely_zeros
from clawpipe.learn.training.trainers.base import PackedTrainer
from clawpipe.learn.training.trainers.policy import require_applied_ratios
from clawpipe.play.recorded.compare import _chosen
from tests.training.test_samples import GOOD, SCHEMA


def shown(sample: Sample, weight: float) -> Sample:
    """The row as one that no policy sampled."""
    streams = {"behaviour": np.zeros(len(sample.trained), np.float32), "advantages": np.ones(len(sample.trained), np.float32)}
    return replace(sample, streams=streams, weight=weight, imitated=True)


def logprobs(model: Any, sample: Sample) -> torch.Tensor:
    """float64 [N], of the whole row alone."""
    with torch.no_grad():
        logits = model.double()(torch.from_numpy(sample.token_ids)[None]).logits[0] / sample.temperature
    model.float()
    places = torch.from_numpy(sample.trained)
    return logits.log_softmax(-1)[places - 1, torch.from_numpy(sample.token_ids[sample.trained])]


def expected_loss(model: Any, rows: list[Sample], normalise: str) -> float:
    """PPO's loss of sampled rows and the likelihood's of the others, each times its weight."""
    total, size = 0.0, 0
    for row in rows:
        lp = logprobs(model, row)
        ratio, advantage = (
            (lp - torch.from_numpy(row.streams["behaviour"]).double()).exp(),
            torch.from_numpy(row.streams["advantages"]),
        )
        loss = -torch.minimum(ratio * advantage, ratio.clamp(0.8, 1.28) * advantage)
        loss = torch.where(advantage < 0, torch.minimum(loss, -3.0 * advantage), loss)
        loss = row.weight * (-lp if row.imitated else loss)
        total += float(loss.mean() if normalise == "sequence" else loss.sum())
        size += 1 if normalise == "sequence" else len(lp)
    return total / size


@pytest.mark.parametrize("normalise", ["token", "sequence"])
@pytest.mark.parametrize("plan", [[[[0, 1, 2, 3, 4, 5]]], [[[0, 1, 2], [3], [4, 5]]]])
def test_the_loss_is_that_of_both_kinds_of_rows(tiny_llama, rollouts, fit, plan, normalise) -> None:
    rows = [replace(row, weight=1.0 + place) for place, row in enumerate(rollouts(groups=2, each=3))]
    rows[1], rows[3] = shown(rows[1], 0.5), shown(rows[3], 0.25)
    model = tiny_llama()
    expected = expected_loss(model, rows, normalise)
    (step,) = fit(model, StoredRows.of(rows), plan, objective=PolicyObjective(Loss(normalise=normalise)), trainer=PackedTrainer)
    assert step["loss"] == pytest.approx(expected, rel=1e-5)


def test_metrics_of_ratios_are_those_of_sampled_rows_alone(tiny_llama, rollouts, fit) -> None:
    rows = rollouts(groups=2, each=3)
    (alone,) = fit(tiny_llama(), rows[:3], [[[0], [1, 2]]])
    mixed = StoredRows.of([*rows[:3], *(shown(row, 0.5) for row in rows[3:])])
    (beside,) = fit(tiny_llama(), mixed, [[[0, 3], [1, 2], [4, 5]]])
    same = (
        "ratio_mean",
        "ratio_min",
        "ratio_max",
        "clip_frac",
        "approx_kl",
        "behav_lp",
        "lp",
        "entropy",
        "adv_mean",
        "adv_std",
        "policy_loss",
    )
    assert {name: beside[name] for name in same} == pytest.approx({name: alone[name] for name in same}, rel=1e-4)
    nll = torch.cat([-logprobs(tiny_llama(), row) for row in rows[3:]]).mean()
    assert beside["imitated_nll"] == pytest.approx(float(nll), rel=1e-5)
    assert "imitated_nll" not in alone


def test_a_run_of_demonstrations_alone_is_no_ignored_ratio(tiny_llama, rollouts, fit) -> None:
    steps = fit(tiny_llama(), StoredRows.of([shown(row, 1.0) for row in rollouts(groups=1, each=2)]), [[[0, 1]]])
    assert "ratio_mean" not in steps[0]
    require_applied_ratios(steps)


def test_their_zeros_are_no_recorded_log_probs(tiny_llama, rollouts) -> None:
    require_likely_zeros([shown(row, 1.0) for row in rollouts(groups=2, each=3)], lambda rows: pytest.fail("none was recorded"))


def test_a_critic_learns_from_sampled_rows_alone(make_sample) -> None:
    rows = [make_sample([1, 2, 3], [1, 2]), shown(make_sample([4, 5, 6], [1, 2]), 0.5)]
    rows = [replace(row, streams={**row.streams, "rewards": np.array([0.0, 1.0], np.float32)}) for row in rows]
    values = [np.array([0.5, 0.25]), np.array([9.0, 7.0])]
    sampled, imitated = with_advantages(rows, values, Ppo())
    (alone,) = with_advantages(rows[:1], values[:1], Ppo())
    assert {name: stream.tolist() for name, stream in sampled.streams.items()} == {n: s.tolist() for n, s in alone.streams.items()}
    assert imitated.streams["advantages"].tolist() == [1.0, 1.0]
    assert imitated.streams["returns"].tolist() == imitated.streams["values"].tolist() == [9.0, 7.0]


METHODS = {
    "grpo": Train(loss=Loss(kl_coef=0.1, tis_cap=2.0)),
    "ppo": Train(method="ppo"),
    "opd": Train(method="opd", opd=Opd(top_k=2)),
    "combine": Train(method="combine", opd=Opd(form="token")),
}


@pytest.mark.parametrize("method", METHODS)
def test_rows_called_text_are_read_as_imitated(tmp_path, method) -> None:
    names = [("policy_version", pa.string()), ("trajectory_id", pa.string()), ("rewards", pa.list_(pa.float32()))]
    row = GOOD | {"logprobs": [0.0] * 4, "advantages": [0.0, 1.0, 0.0, 1.0], "policy_version": "text", "trajectory_id": "t"}
    write_parquet(pa.Table.from_pylist([row], pa.schema([*SCHEMA, *names])), tmp_path / "s.parquet")
    (sample,), filtered = load_samples([str(tmp_path / "s.parquet")], METHODS[method], 1.0)
    assert (filtered, sample.imitated, sample.streams["imitated"].tolist()) == ({}, True, [True, True])
    assert sample.streams["advantages"].tolist() == [1.0, 1.0]


def test_what_no_policy_sampled_is_compared_with_none(tmp_path) -> None:
    row = {"item_id": "a", "renderer_digest": "r", "rollout_index": 0, "prompt_tokens": 1} | GOOD
    rows = [row | {"trajectory_id": version, "policy_version": version} for version in ("p0", "text")]
    store = Store(tmp_path / "store")
    samples = publish_dataset(store, "samples", [pa.Table.from_pylist(rows, schema_of("samples"))])
    assert list(_chosen(store, samples)) == ["p0"]
