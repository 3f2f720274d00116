"""What was evaluated is what is packaged, exported and loaded again: each kind of artifact, to the last bit."""

from __future__ import annotations

import json
import shutil
from functools import partial

import pytest
import torch
from peft import AutoPeftModelForCausalLM
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from clawpipe.core.config.night import EnvironmentConfig, Evaluation, Gate, Rollouts
from clawpipe.core.store.artifacts import Store
from clawpipe.core.store.datasets import read_dataset
from clawpipe.core.store.digests import sha256_file
from clawpipe.errors import ConfigError, DataError, TrainingError
from clawpipe.learn.evaluation.heldout.draw import draw_heldout, make_benchmark, make_task_items
from clawpipe.learn.evaluation.heldout.heldout import evaluate
from clawpipe.learn.evaluation.verdict.gate import decide
from clawpipe.learn.evaluation.verdict.verdict import Evidence, Fidelity, ItemOutcome, ModelOutcomes
from clawpipe.model.engines.base import Sampling
from clawpipe.model.engines.embedded import EmbeddedEngine
from clawpipe.model.policy.base import copy_companions
from clawpipe.model.policy.load import load_base
from clawpipe.model.policy.spec import policy_spec
from clawpipe.model.policy.vocabulary import load_tokenizer
from clawpipe.play.rollouts.generate import roll_out
from clawpipe.record.registry.package import Package, restore_policy, verify_package, write_package
from clawpipe.serve.export.files import write_files
from clawpipe.serve.export.served import export_policy
from clawpipe.serve.serving.found import find_adapter

KINDS = {"adapter": None, "merged": "none", "merged, int8": "int8-torchao", "merged, nf4": "nf4"}
LETTERS = EnvironmentConfig(name="letters", train_items=2, heldout_items=4)
ROLLOUTS = Rollouts(items=1, max_new_tokens=8, max_turns=1)
IDS = list(range(97, 117))


@pytest.fixture(params=KINDS)
def candidate(request, store, pool, trained):
    """A policy as it would be served."""
    policy, quantization = trained(), KINDS[request.param]
    return policy if quantization is None else export_policy(store, pool, policy, quantization).model


@pytest.fixture
def merged(store, pool, trained):
    return export_policy(store, pool, trained(), "int8-torchao").model


@pytest.fixture
def packaged(store, tmp_path):
    """packaged(policy): the directory of its package."""

    def make(policy):
        outcome = ModelOutcomes(policy_version=policy.policy_version, items={"1": ItemOutcome(success=True, slice="s")})
        changed = Fidelity(trained="t", served=policy.policy_version, divergence=0.0123, learnt=0.5, positions=256)
        evidence = Evidence(base=outcome, candidate=outcome, served=policy.policy_version, fidelity=changed)
        package = Package(
            key=policy.policy_version,
            model_name="agent",
            night="2030-01-02",
            policy=policy,
            environment="letters",
            tools=(),
            datasets={},
            config={},
            verdict=decide(evidence, Gate()),
        )
        write_package(tmp_path / "package", store, package)
        return tmp_path / "package"

    return make


def engine_of(store, policy):
    spec = policy_spec(store, policy)
    return EmbeddedEngine(spec.base, spec.adapter, spec.dtype, "cpu", spec.quantization)


def test_a_restored_package_says_the_evaluated_tokens(store, pool, tmp_path, candidate, packaged):
    made, benchmark = make_task_items(store, LETTERS).dataset, make_benchmark(store, LETTERS).dataset
    items = draw_heldout(store, made, benchmark, LETTERS, {}).dataset
    once = ROLLOUTS.once(Evaluation().temperature)
    played = partial(roll_out, store, pool, tmp_path / "work", environment=LETTERS, config=once, seed=0)
    result = evaluate(store, played, items, candidate, LETTERS)
    rows = read_dataset(store, result.extras["trajectories"]).to_pylist()
    assert {row["policy_version"] for row in rows} == {candidate.policy_version}

    elsewhere = Store(tmp_path / "elsewhere")
    assert restore_policy(elsewhere, packaged(candidate)) == candidate
    engine = engine_of(elsewhere, candidate)
    prompts = [row["token_ids"][: row["prompt_tokens"]] for row in rows]
    turns = engine.begin(prompts).sample(dict.fromkeys(range(4), 0), Sampling(0.0, ROLLOUTS.max_new_tokens, (257,)))
    assert [prompt + turns[row].ids for row, prompt in enumerate(prompts)] == [row["token_ids"] for row in rows]
    recorded = [value for row in rows for value, sampled in zip(row["logprobs"], row["loss_mask"], strict=True) if sampled]
    said = [value for row in range(4) for value in turns[row].logprobs]
    assert said == pytest.approx(recorded, abs=1e-4)  # another number of rows at once may round otherwise


def test_policies_with_different_outputs_differ_in_version(store, pool, trained):
    policy = trained()
    kinds = [policy, *(export_policy(store, pool, policy, bits).model for bits in ("none", "int8-torchao", "nf4"))]
    assert len({kind.policy_version for kind in kinds}) == 4
    assert len({kind.digest for kind in kinds}) == 2  # one adapter, one set of merged weights
    assert kinds[1].parents == (policy.digest,)
    said = [tuple(engine_of(store, kind).score(IDS, 1)) for kind in kinds]
    assert len(set(said)) == 4
    assert said[1] == pytest.approx(said[0], abs=1e-4)


def test_whole_weights_need_no_base(base, store, merged, tmp_path):
    spec = policy_spec(store, merged.model_copy(update={"base_name": str(tmp_path / "lost")}))
    assert load_tokenizer(store.path(merged)).decode(IDS) == load_tokenizer(base.path).decode(IDS)
    assert (spec.base, spec.adapter, spec.quantization) == (str(store.path(merged)), None, "int8-torchao")


def test_the_package_lists_weights_and_quantization(merged, packaged):
    directory = packaged(merged)
    assert {"model.safetensors", "config.json", "tokenizer.json", "manifest.json"} <= verify_package(directory).files.keys()
    card = (directory / "README.md").read_text()
    assert "library_name: transformers" in card
    assert "linear layers in int8-torchao" in card
    assert "its KL divergence from the trained policy is 0.012 nats" in card
    assert "LoRA" not in card


@pytest.mark.parametrize(
    "claim", [{"quantization": "none"}, {"quantization": "nf4"}, {"weights": False}, {"weights": False, "adapter": True}]
)
def test_a_package_that_claims_to_be_another_policy_is_refused(merged, packaged, claim):
    directory = packaged(merged)
    index = json.loads((directory / "clawpipe.json").read_bytes())
    index["policy"] |= claim
    (directory / "clawpipe.json").write_text(json.dumps(index))
    with pytest.raises(DataError):
        verify_package(directory)


def test_other_weights_are_refused(merged, packaged):
    directory = packaged(merged)
    weights = directory / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-4] + b"\0\0\0\1")
    index = json.loads((directory / "clawpipe.json").read_bytes())
    index["files"]["model.safetensors"] = sha256_file(weights)
    (directory / "clawpipe.json").write_text(json.dumps(index))
    with pytest.raises(DataError, match="not those of its artifact"):
        verify_package(directory)


# ---- files for other engines


def test_peft_loads_an_exported_adapter_on_its_base(base, store, trained, tmp_path):
    policy = trained()
    write_files(store, policy, "adapter", tmp_path / "out")
    assert not (tmp_path / "out" / "manifest.json").exists()
    model = AutoPeftModelForCausalLM.from_pretrained(tmp_path / "out")  # on the base that it names
    assert scores(model) == pytest.approx(engine_of(store, policy).score(IDS, 1), abs=1e-4)
    assert find_adapter(tmp_path / "out", policy.tool_call_format).spec.base == str(base.path)


@pytest.mark.parametrize("kind", ["adapter", "weights"])
def test_merged_weights_are_equal_for_adapters_and_weights(store, pool, trained, tmp_path, kind):
    policy = trained()
    weights = export_policy(store, pool, policy, "nf4").model
    distance = write_files(store, policy if kind == "adapter" else weights, "merged", tmp_path / "out").distance
    assert (distance is None) is (kind == "weights")  # which are copied
    stored, written = (load_file(place / "model.safetensors") for place in (store.path(weights), tmp_path / "out"))
    assert all(torch.equal(stored[name], written[name]) for name in stored)
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == sorted(
        path.name for path in store.path(weights).iterdir() if path.name != "manifest.json"
    )


@pytest.mark.parametrize("bits", ["nf4", "int8", "int8-torchao"])
def test_transformers_loads_exported_quantized_weights(store, pool, trained, tmp_path, bits):
    policy = export_policy(store, pool, trained(), bits).model
    distance = write_files(store, policy, "quantized", tmp_path / "out").distance
    assert distance["largest"] < 1e-4
    assert (tmp_path / "out" / "model.safetensors").stat().st_size < 0.6 * (store.path(policy) / "model.safetensors").stat().st_size
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "out", device_map={"": "cpu"}).eval()
    near = 0.1 if bits == "nf4" else 1e-4  # on some CPUs bitsandbytes runs nf4 in bfloat16
    assert scores(model) == pytest.approx(engine_of(store, policy).score(IDS, 1), abs=near)
    assert (tmp_path / "out" / "tokenizer.json").exists()


def test_written_weights_are_measured_and_refused(store, trained, tmp_path, monkeypatch):
    policy = trained(rate=3e-2)
    distance = write_files(store, policy, "merged", tmp_path / "right").distance
    assert 0 < distance["mean"] <= distance["largest"] < 1e-3
    assert distance["tokens"] > 100

    def forget(base, adapter, dtype, directory):
        load_base(base, dtype, torch.device("cpu")).save_pretrained(directory)
        copy_companions(base, directory)

    monkeypatch.setattr("clawpipe.play.workers.merge.merge", forget)
    with pytest.raises(TrainingError, match=r"nats off the policy's, .* on average \(over \d+ tokens; allowed 0.001"):
        write_files(store, policy, "merged", tmp_path / "wrong")
    assert not (tmp_path / "wrong").exists()


def scores(model):
    with torch.inference_mode():
        likely = model(input_ids=torch.tensor([IDS])).logits[0, :-1].float().log_softmax(-1)
    return likely.gather(-1, torch.tensor(IDS[1:])[:, None]).squeeze(-1).tolist()


def test_an_unavailable_form_is_refused_without_leftovers(store, trained, merged, tmp_path):
    with pytest.raises(ConfigError, match="no adapter"):
        write_files(store, merged, "adapter", tmp_path / "out")
    with pytest.raises(ConfigError, match="no quantized weights"):
        write_files(store, trained(), "quantized", tmp_path / "out")
    assert not (tmp_path / "out").exists()
    write_files(store, merged, "merged", tmp_path / "out")
    with pytest.raises(ConfigError, match="there already"):
        write_files(store, merged, "merged", tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_a_lost_artifact_is_merged_again_into_the_same_one(store, pool, trained):
    policy = trained()
    first = export_policy(store, pool, policy, "none").model
    shutil.rmtree(store.path(first))
    assert export_policy(store, pool, policy, "none").model == first
    assert store.intact(first)
