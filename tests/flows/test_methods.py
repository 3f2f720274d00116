"""Each training method runs a whole night: what it leaves beside the usual, and that it learns."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from clawpipe.core.store.artifacts import Store
from clawpipe.core.store.datasets import dataset_ref, read_dataset
from clawpipe.model.policy.base import resolve_base
from clawpipe.model.policy.load import load_policy
from clawpipe.model.policy.vocabulary import load_tokenizer

pytestmark = [pytest.mark.slow, pytest.mark.trains]

DATA = 65  # exit code
FEW = ("rounds=1", "environment.heldout_items=50")


def step(status: dict[str, Any], name: str) -> dict[str, Any]:
    [found] = [entry for entry in status["steps"] if entry["name"] == f"round-1/{name}"]
    return found


def round_steps(status: dict[str, Any]) -> list[str]:
    return [entry["name"].removeprefix("round-1/") for entry in status["steps"] if entry["name"].startswith("round-1/")]


def rows(clawpipe, status: dict[str, Any], name: str) -> list[dict[str, Any]]:
    """What a step of the round made."""
    store, made = Store(clawpipe.home.store), step(status, name)["artifacts"]["output"]
    return read_dataset(store, dataset_ref(store, made["name"], made["digest"])).to_pylist()


def gain(status: dict[str, Any]) -> float:
    return status["heldout"]["candidate"]["success"] - status["heldout"]["base"]["success"]


def margin_grew(status: dict[str, Any]) -> bool:
    """Whether pairs that training had not seen yet were told apart in the end; at first the policy is the reference: none is."""
    first, *_, last = step(status, "train")["details"]["updates"]
    return abs(first["margin"]) < 1e-3 and last["margin"] > 0.02


@pytest.fixture(scope="module")
def night(finished):
    """night(method, ...): the status of a short night in the undisturbed home, under a model name of its own."""

    def run(method: str, *overrides: str) -> dict[str, Any]:
        own = (f"night={method}", f"train.method={method}", f"registry.model_name={method}")
        return finished.clawpipe.night(*own, *FEW, *overrides)

    return run


@pytest.fixture(scope="module")
def teacher(finished, tmp_path_factory) -> Path:
    """A base model that knows the task: the undisturbed night's policy, merged, and surer of itself."""
    adapter = finished.clawpipe.home.store / "adapter" / finished.status["model"]["digest"]
    base, directory = resolve_base("random").path, tmp_path_factory.mktemp("teacher")
    model: Any = load_policy(base, adapter, "float32", torch.device("cpu"))
    plain = AutoModelForCausalLM.from_pretrained(base)
    with torch.no_grad():
        for name, module in model.named_modules():
            if hasattr(module, "merge"):
                module.merge()
                plain.get_submodule(name).weight.copy_(module.base_layer.weight)
        plain.lm_head.weight.mul_(4)
    plain.save_pretrained(directory)
    load_tokenizer(base).save_pretrained(directory)
    return directory


@pytest.fixture(scope="module")
def taught(teacher: Path) -> tuple[str, ...]:
    """By a base model by name; a student of random weights is sure of no token, so the teacher's likeliest are compared."""
    return (f"train.opd.teacher={teacher}", "train.opd.top_k_of=teacher")


def test_ppo_trains_a_critic_beside_the_policy(night, finished):
    status = night("ppo")
    assert round_steps(status) == ["generate_rollouts", "validate", "score", "curate", "train"]
    assert any(any(row["rewards"]) for row in rows(finished.clawpipe, status, "curate"))
    updates = step(status, "train")["details"]["updates"]
    assert all({"explained_variance", "value_loss"} <= set(update) for update in updates)


def test_dpo_learns_from_pairs_and_from_stored_ones_alone(night, finished):
    status = night("dpo")
    assert round_steps(status) == ["generate_rollouts", "validate", "score", "curate", "annotate", "train"]
    pairs, scores = (rows(finished.clawpipe, status, name) for name in ("curate", "annotate"))
    sides = [(pair, side) for pair in pairs for side in ("chosen", "rejected")]
    assert [score["row_id"] for score in scores] == [f"{pair['pair_id']}/{side}" for pair, side in sides]
    assert [len(score["reference"]) for score in scores] == [sum(pair[f"{side}_loss_mask"]) for pair, side in sides]
    assert margin_grew(status)
    stored = step(status, "curate")["digest"]
    alone = night("dpo", "night=stored-pairs", "rollouts=null", f"preferences=[{stored}]")
    assert round_steps(alone) == ["add_stored_pairs", "annotate", "train"]
    assert step(alone, "add_stored_pairs")["rows_out"] == len(pairs)
    assert margin_grew(alone)


def test_opd_learns_from_a_teacher_that_was_measured(night, finished, taught):
    status = night("opd", *taught)
    assert round_steps(status) == [
        *("generate_rollouts", "validate", "score", "clear_hints", "curate", "probe_teacher", "annotate", "train"),
    ]
    figures = step(status, "probe_teacher")["details"]
    assert figures["allowed"]
    assert figures["teacher_success"] > figures["student_success"] + 0.5
    samples, scores = (rows(finished.clawpipe, status, name) for name in ("curate", "annotate"))
    assert [score["row_id"] for score in scores] == [sample["trajectory_id"] for sample in samples]
    assert all(len(score["teacher"]) == sum(sample["loss_mask"]) for sample, score in zip(samples, scores, strict=True))
    assert step(status, "annotate")["details"]["teacher_mass"] > 0.9
    assert gain(status) > 0.3
    _shows_who_was_asked(status)


def _shows_who_was_asked(status: dict[str, Any]) -> None:
    """The lineage: samples, scores, items, student and teacher -> token scores -> the adapter."""
    lineage = json.loads((Path(status["run_dir"]) / "lineage.json").read_text())
    scored, made = step(status, "annotate")["digest"], step(status, "train")["digest"]
    assert [scored, made] in lineage["edges"]
    assert [step(status, "curate")["digest"], scored] in lineage["edges"]
    asked = [read for read, result in lineage["edges"] if result == scored]
    kinds = {node["id"]: (node["kind"], node["name"]) for node in lineage["nodes"]}
    assert {kinds[read][0] for read in asked} == {"dataset", "base"}
    assert sum(kinds[read][0] == "base" for read in asked) == 2  # student and teacher


def test_combine_adds_the_rewards(night, finished, taught):
    status = night("combine", *taught)
    assert round_steps(status)[-4:] == ["curate", "probe_teacher", "annotate", "train"]
    assert any(any(row["advantages"]) for row in rows(finished.clawpipe, status, "curate"))
    assert gain(status) > 0.3


def test_a_weak_hint_is_refused_with_its_figures(finished):
    """The student's own eyes on a note that it cannot read."""
    weak = ("night=weak", "train.method=opd", "registry.model_name=weak", *FEW)
    refused = finished.clawpipe.run(*weak)
    assert (refused.code, refused.json["error"]) == (DATA, "DataError")
    assert "the hinted teacher is not clearly better than the student" in refused.json["what"]
    assert "% of 16 items" in refused.json["what"]
    assert "train.method to grpo" in refused.json["fix"]
    assert finished.clawpipe.registered("weak") == {}
