"""What is served against what was trained."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM

from clawpipe.core.store.datasets import publish_dataset
from clawpipe.errors import TrainingError
from clawpipe.model.engines.embedded import EmbeddedEngine
from clawpipe.model.policy.spec import policy_spec
from clawpipe.model.policy.version import base_ref
from clawpipe.play.workers.merge import divergences
from clawpipe.play.workers.request import Context
from clawpipe.serve.export.served import export_policy, measure_fidelity


def load(spec):
    return EmbeddedEngine(Path(spec.base), spec.adapter and Path(spec.adapter), spec.dtype, "cpu", spec.quantization)


def main_turn(start, end):
    return {"start": start, "end": end, "kind": "main", "finish_reason": "stop"}


@pytest.fixture
def heldout(store):
    """Two trajectories over the alphabet."""
    rows = [
        {"token_ids": [*range(97, 123)], "loss_mask": [False] * 6 + [True] * 20, "turns": [main_turn(6, 26)]},
        {"token_ids": [97, 98, 99], "loss_mask": [False, True, True], "turns": [main_turn(1, 3)]},
    ]
    return publish_dataset(store, "trajectories", [pa.Table.from_pylist(rows)])


def test_divergence_is_the_mean_of_kl_over_the_positions(base, store, trained):
    policy = trained()
    specs = policy_spec(store, policy), policy_spec(store, base_ref("random", base.digest, "pythonic", "float32"))
    contexts = [Context(ids=tuple(range(97, 110)), positions=(3, 4)), Context(ids=(100, 101, 102), positions=(2,))]
    [found] = divergences(load, specs[0], [specs[1]], contexts)
    by_hand = []
    for ids, place in (((97, 98, 99), 3), ((97, 98, 99, 100), 4), ((100, 101), 2)):
        assert len(ids) == place
        p, q = (next_word(spec, ids) for spec in specs)
        by_hand.append((np.exp(p) * (p - q)).sum())
    assert found == pytest.approx(np.mean(by_hand), rel=1e-4)


def next_word(spec, ids):
    """Log-probs of what follows `ids`, by transformers and peft alone."""
    model = AutoModelForCausalLM.from_pretrained(spec.base)
    model = PeftModel.from_pretrained(model, spec.adapter) if spec.adapter else model
    with torch.inference_mode():
        return model(input_ids=torch.tensor([ids])).logits[0, -1].log_softmax(-1).numpy()


def test_a_policy_does_not_diverge_from_itself(store, trained):
    spec = policy_spec(store, trained())
    assert divergences(load, spec, [spec], [Context(ids=(97, 98, 99), positions=(1, 2))]) == [0.0]


def test_what_is_not_finite_is_no_figure(store, trained):
    spec = policy_spec(store, trained())

    class Broken:
        def distributions(self, ids, positions):
            return torch.full((len(positions), 259), torch.nan)

    broken = spec.model_copy(update={"policy_version": "broken"})
    engines = {spec: load(spec), broken: Broken()}
    assert divergences(engines.__getitem__, spec, [broken], [Context(ids=(97, 98), positions=(1,))]) == [None]


@pytest.mark.parametrize(
    ("held", "served", "near"),
    [
        ("none", "none", 1e-5),  # merging alone
        ("none", "int8-torchao", 0.05),
        ("int8-torchao", "int8-torchao", 0.05),
        ("nf4", "none", None),  # the base's own error outweighs what was learnt: the gate has to say no
    ],
)
def test_the_step_measures_what_serving_costs(base, store, pool, trained, heldout, held, served, near):
    policy = trained(quantization=held)
    untrained = base_ref("random", base.digest, "pythonic", "float32", held)
    exported = export_policy(store, pool, policy, served).model
    figures = measure_fidelity(store, pool, policy, exported, untrained, heldout).details
    assert (figures["trained"], figures["served"]) == (policy.policy_version, exported.policy_version)
    assert figures["positions"] == 22
    assert figures["learnt"] > 0.1
    share = figures["divergence"] / figures["learnt"]
    assert share < near if near else share > 0.05


def test_a_served_policy_that_breaks_is_an_error(store, trained, heldout):
    class Answers:
        def run(self, job):
            return [None, 0.3]

    policy = trained()
    with pytest.raises(TrainingError, match="not finite"):
        measure_fidelity(store, Answers(), policy, policy, policy, heldout)
