"""Nights whose base is held in fewer bits, whose candidate is merged, and whose every weight is trained."""

from __future__ import annotations

import json

import pytest

pytestmark = pytest.mark.slow

ROUND = tuple(f"round-1/{step}" for step in ("generate_rollouts", "validate", "score", "curate", "train"))
MERGED = ("night=merged", "rounds=1", "model.quantization=int8-torchao", "serving.artifact=merged")


def details(status, name):
    [step] = [step for step in status["steps"] if step["name"] == name]
    return step["details"]


def names(status):
    return [step["name"] for step in status["steps"]]


def test_the_quantized_candidate_is_evaluated_and_registered(new_clawpipe):
    clawpipe = new_clawpipe("merged")
    overrides = (*MERGED, "serving.quantization=int8-torchao", "serving.max_divergence=0.2")
    status = clawpipe.night(*overrides)
    tail = ["export", "record_look", "evaluate/base", "evaluate/candidate", "measure_fidelity", "gate"]
    assert names(status)[: len(ROUND) + 9] == ["check_model", "make_items", "draw_heldout", *ROUND, *tail]
    fidelity = details(status, "measure_fidelity")
    assert 0 < fidelity["divergence"] < 0.2 * fidelity["learnt"]
    [exported] = [step["artifacts"]["output"] for step in status["steps"] if step["name"] == "export"]
    assert exported["policy_version"] == status["policy_version"] == fidelity["served"] != fidelity["trained"]
    assert (exported["weights"], exported["adapter"], exported["quantization"]) == (True, False, "int8-torchao")
    assert status["verdict"] in ("PROMOTE", "HOLD")
    assert status["model"]["digest"] == exported["digest"]
    [files] = clawpipe.registered().values()
    assert (files / "model.safetensors").exists()
    assert json.loads((files / "clawpipe.json").read_text())["policy"]["policy_version"] == status["policy_version"]

    again = clawpipe.night(*overrides)
    assert [step["name"] for step in again["steps"] if step["state"] == "ran"] == ["record_look", "publish_lineage"]
    assert clawpipe.leftovers() == []

    strict = clawpipe.night(*MERGED, "serving.quantization=nf4", "serving.max_divergence=0.001", "registry.model_name=strict")
    assert strict["verdict"] == "HOLD"
    assert any("serving.max_divergence allows 0.1 %" in reason for reason in strict["reasons"])


def test_every_weight_can_be_trained_round_after_round(new_clawpipe):
    clawpipe = new_clawpipe("full")
    status = clawpipe.night("night=full", "rounds=2", "train.adapter=full", "train.learning_rate=3e-3")
    trained = [step["artifacts"]["output"] for step in status["steps"] if step["name"].endswith("/train")]
    assert [policy["weights"] for policy in trained] == [True, True]
    assert trained[1]["policy_version"] == status["policy_version"]
    assert status["verdict"] in ("PROMOTE", "HOLD", "REJECT")
    assert "export" not in names(status)


def test_a_model_too_large_for_the_machine_is_refused_first(new_clawpipe):
    clawpipe = new_clawpipe("refused")
    refused = clawpipe.run("model.quantization=fp8", "runtime.device=auto")
    assert (refused.code, refused.json["error"]) == (2, "ConfigError")
    assert "needs a GPU" in refused.json["what"]
    assert clawpipe.artifacts() == set()
