"""Families of transformers as tiny models of large random weights: engine and trainer against the model's own forward."""

import importlib
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM, Qwen3_5Config, Qwen3_5ForConditionalGeneration

from clawpipe.core.config.training import Train
from clawpipe.errors import ConfigError, DataError
from clawpipe.learn.training.check_request import TrainerCheckRequest
from clawpipe.learn.training.check_run import compare_trainer
from clawpipe.learn.training.data.packing import build_pack
from clawpipe.learn.training.data.samples import Sample
from clawpipe.learn.training.model.build import build_model
from clawpipe.learn.training.model.scoring_head import install_scoring_head, score_pack
from clawpipe.learn.training.model.tree_attention import use_packs
from clawpipe.model.engines.base import Sampling
from clawpipe.model.engines.embedded import EmbeddedEngine
from clawpipe.model.policy.agreement import bound_of, require_agreement
from clawpipe.model.policy.layout import longest_at
from clawpipe.model.policy.load import load_policy
from clawpipe.model.policy.probe import Probe, probe_for, probe_of
from clawpipe.model.policy.spec import PolicySpec
from clawpipe.model.policy.tiny import byte_tokenizer
from clawpipe.play.workers.compare import compare_engine

CPU = torch.device("cpu")
BOUND = 1e-3  # nats
PACKED = [
    *("llama", "mistral", "qwen2", "qwen3", "qwen3_moe", "gemma2", "gemma3_text", "phi", "phi3", "phimoe", "granite", "granitemoe"),
    *("olmo2", "olmo3", "smollm3", "gpt_oss", "cohere", "cohere2", "deepseek_v3", "gpt2", "opt"),
]
APART = ["qwen3_next", "qwen3_5_text", "falcon_h1", "jamba", "bamba", "lfm2", "mamba2", "bloom", "llama4_text", "nemotron"]
pytestmark = pytest.mark.filterwarnings("ignore:.torch.jit.script_method. is deprecated:DeprecationWarning")


@pytest.fixture(scope="module")
def families():
    """Import the benchmark's module; its table in docs/models.md names the same models."""
    sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
    yield importlib.import_module("families")
    sys.path.pop(0)


@pytest.fixture(autouse=True)
def _one_thread():
    torch.set_num_threads(1)
    yield
    torch.use_deterministic_algorithms(False)  # which building a model for training turns on


def trained(base):
    model = load_policy(base, None, "float32", CPU)
    use_packs(model, CPU)
    return model


@pytest.mark.parametrize("family", [*PACKED, *APART])
def test_log_probs_are_those_of_the_models_own_forward(families, family):
    """Covers scaled or capped logits, sliding windows, sinks, alibi, experts and states."""
    row = families.measure(family)
    assert row["rows"] == ("packed" if family in PACKED else "apart"), row
    assert max(row["engine"], row["trainer"]) < BOUND


def test_the_engine_and_the_plain_forward_of_a_fresh_load_agree(families, tmp_path):
    """The check compares within one load, so loads must agree."""
    base = families.write_model("granite", tmp_path)
    ids = list(range(40, 80))
    logits = AutoModelForCausalLM.from_pretrained(base)(torch.tensor([ids])).logits[0, :-1]
    expected = logits.log_softmax(-1).gather(-1, torch.tensor(ids[1:])[:, None])[:, 0].tolist()
    assert EmbeddedEngine(base, None, device="cpu").score(ids, 1) == pytest.approx(expected, abs=1e-4)


def test_a_window_that_no_row_reaches_is_no_reason_to_refuse(families, tmp_path):
    engine = EmbeddedEngine(families.write_model("mistral", tmp_path, sliding_window=4096), None, device="cpu")
    assert engine.layout == "packed"
    assert compare_engine(engine, engine.model, probe_for(engine.model, tmp_path)).largest < BOUND


def test_a_composite_checkpoint_runs_as_its_text_model(families, tmp_path):
    """Qwen3.5 is published as a text model within a larger one."""
    vision = {"depth": 1, "hidden_size": 32, "intermediate_size": 32, "num_heads": 2, "out_hidden_size": 64}
    text = families._SIZES | families.FAMILIES["qwen3_5_text"]
    whole = Qwen3_5ForConditionalGeneration(Qwen3_5Config(text_config=text, vision_config=vision | {"num_position_embeddings": 16}))
    whole.eval().save_pretrained(tmp_path)
    byte_tokenizer().save_pretrained(tmp_path)
    engine, ids = EmbeddedEngine(tmp_path, None, device="cpu"), list(range(40, 80))
    with torch.no_grad():
        logprobs = whole(input_ids=torch.tensor([ids])).logits[0, :-1].log_softmax(-1)
    assert engine.score(ids, 1) == pytest.approx(logprobs.gather(-1, torch.tensor(ids[1:])[:, None])[:, 0].tolist(), abs=1e-4)
    assert engine.context == 512
    assert compare_engine(engine, engine.model, probe_for(engine.model, tmp_path)).largest < BOUND
    model = trained(tmp_path)
    assert compare_trainer(model, probe_for(model, tmp_path)).largest < BOUND


@pytest.mark.parametrize("family", ["mistral", "gemma2", "gpt_oss", "lfm2", "qwen3_5_text", "bloom"])
def test_gradients_of_a_pack_are_those_of_its_rows_one_by_one(families, tmp_path, family):
    model = trained(families.write_model(family, tmp_path))
    stem = list(range(30, 54))
    rows = [[*stem, 7, 8, 9, 10], [*stem, 7, 8, 20, 21, 22], [*stem, 11]]
    samples = [Sample("g", np.asarray(row), np.arange(20, len(row)), 0.7, 1.0, {}) for row in rows]
    install_scoring_head(model)
    pack = build_pack(samples)
    assert pack["input_ids"].numel() < 40
    packed = gradients(model, score_pack(model, pack).logprobs[pack["score"]].sum())
    losses = [(model(torch.tensor([row])).logits[0] / 0.7).log_softmax(-1) for row in rows]
    alone = gradients(model, sum(likely[range(19, len(row) - 1), row[20:]].sum() for likely, row in zip(losses, rows, strict=True)))
    assert (packed - alone).norm() / alone.norm() < 1e-4


def gradients(model, loss):
    model.zero_grad()
    loss.backward()
    return torch.cat([weight.grad.flatten() for weight in model.parameters() if weight.grad is not None])


def test_rows_with_length_dependent_positions_are_bounded(families, tmp_path):
    """Phi-3's long context: beyond 32 tokens all angles of a row change, even in its shared prefix."""
    factors = {"short_factor": [1.0] * 8, "long_factor": [4.0] * 8, "factor": 16.0}
    rope = {"rope_type": "longrope", "rope_theta": 10000.0, "original_max_position_embeddings": 32, **factors}
    base = families.write_model("phi3", tmp_path, rope_parameters=rope, original_max_position_embeddings=32)
    assert EmbeddedEngine(base, None, device="cpu").context == 32
    model = trained(base)
    short = Probe([[*range(20), 5], [*range(20), 6, 7]], [[], []])
    assert compare_trainer(model, short).largest < BOUND
    with pytest.raises(DataError, match="rows of more than 32 have other positions") as refused:
        compare_trainer(model, probe_for(model, base))  # rows of 25 to 60 tokens
    assert refused.value.where == "curation.max_tokens"


LONGROPE = {"rope_type": "longrope", "rope_theta": 1e4, "original_max_position_embeddings": 32, "short_factor": [1.0] * 8}


@pytest.mark.parametrize(
    ("family", "settings", "longest"),
    [
        ("gpt2", {"n_positions": 64}, 64),  # a table of places, beyond which there is an IndexError
        ("opt", {"max_position_embeddings": 64}, 64),
        ("llama", {"max_position_embeddings": 64}, sys.maxsize),
        ("mamba", {}, sys.maxsize),
        ("phi3", {"rope_parameters": LONGROPE | {"long_factor": [4.0] * 8}, "original_max_position_embeddings": 32}, 32),
    ],
)
def test_the_longest_row_that_a_family_computes(tmp_path, family, settings, longest):
    sizes = {"hidden_size": 64, "num_attention_heads": 4}
    AutoConfig.for_model(family, **sizes, **settings).save_pretrained(tmp_path)
    assert longest_at(tmp_path) == longest


def test_a_stream_equals_a_batch_for_unpacked_models(families, tmp_path):
    engine, sampling = EmbeddedEngine(families.write_model("lfm2", tmp_path), None, device="cpu"), Sampling(1.0, 6)
    prompts = [[5, 9, 33], [5, 9, 33, 80, 41], [7, 7, 7]]
    turns = engine.begin(prompts).sample({0: 3, 1: 4, 2: 5}, sampling)
    for row, prompt in enumerate(prompts):
        streamed = list(engine.begin([prompt]).stream(0, row + 3, sampling))
        assert [token for token, _ in streamed] == turns[row].ids
        assert [likely.logprob for _, likely in streamed] == pytest.approx(turns[row].logprobs, abs=1e-4)


def test_unpacked_rows_of_different_length_do_not_interact(families, tmp_path):
    """Two prompts of equal length share a pass; tokens after the end of the shorter turn are ignored."""
    engine = EmbeddedEngine(families.write_model("falcon_h1", tmp_path), None, device="cpu")
    prompts = [[5, 9, 33, 80], [41, 7, 12, 90]]
    free = engine.begin(prompts).sample({0: 1, 1: 2}, Sampling(1.0, 10))
    stop = next(token for token in free[0].ids[:4] if token not in free[1].ids)
    conversations = engine.begin(prompts)
    turns = conversations.sample({0: 1, 1: 2}, Sampling(1.0, 10, stop_ids=(stop,)))
    assert turns[0].ids == free[0].ids[: free[0].ids.index(stop) + 1]
    assert turns[1].ids == free[1].ids
    conversations.extend({0: [60, 61]})
    again = conversations.sample({0: 9}, Sampling(1.0, 3))[0]
    history = [*prompts[0], *turns[0].ids, 60, 61]
    assert engine.score(history + again.ids, len(history)) == pytest.approx(again.logprobs, abs=1e-4)


def test_a_model_with_wrong_log_probs_is_refused_with_the_figure(families, tmp_path):
    """BERT, as transformers loads it, sees later tokens, so rollouts and plain passes cannot agree."""
    engine = EmbeddedEngine(families.write_model("bert", tmp_path), None, device="cpu")
    found = compare_engine(engine, engine.model, probe_for(engine.model, tmp_path))
    assert found.largest > 1
    with pytest.raises(DataError, match=f"engine's log-probs are {found.largest:.3g} nats off") as refused:
        require_agreement(found, bound_of("float32", "none"), "model.base")
    assert refused.value.exit_code == 65
    assert "\n" not in refused.value.what


@pytest.mark.parametrize("part", ["engine", "trainer"])
def test_the_check_finds_logits_that_are_scaled_wrongly(families, tmp_path, monkeypatch, part):
    """Granite once failed so: a factor of 0.8 on the logits in only one of the two."""
    base = families.write_model("llama", tmp_path)
    module = {"engine": "clawpipe.model.engines.embedded", "trainer": "clawpipe.learn.training.model.scoring_head"}[part]
    own = importlib.import_module(module).logits_of
    monkeypatch.setattr(f"{module}.logits_of", lambda model, hidden: own(model, hidden) * 0.8)
    engine, model = EmbeddedEngine(base, None, device="cpu"), trained(base)
    probe = probe_for(model, base)
    found = {"engine": compare_engine(engine, engine.model, probe), "trainer": compare_trainer(model, probe)}
    for name, figures in found.items():
        assert figures.within(bound_of("float32", "none")) == (name != part)
        assert figures.within(bound_of("bfloat16", "none")) == (name != part)


def test_an_unpacked_model_is_not_sharded_between_processes(families, tmp_path, monkeypatch):
    """Processes with different numbers of passes would wait for each other's weights for ever."""
    monkeypatch.setattr("clawpipe.learn.training.model.build.uses_fsdp", lambda: True)
    policy = PolicySpec(
        base=str(families.write_model("lfm2", tmp_path)),
        adapter=None,
        dtype="float32",
        tool_call_format="hermes",
        policy_version="",
    )
    with pytest.raises(ConfigError, match="computed one by one") as refused:
        build_model(TrainerCheckRequest(policy=policy, train=None, device="cpu", threads=1).training(Train()))
    assert refused.value.where == "runtime.accelerate"


def test_a_probe_is_ragged_with_a_prefix_beyond_the_window():
    probe = probe_of(range(50), window=100)
    assert probe.prompts[0] == probe.prompts[1]
    assert len({len(prompt) for prompt in probe.prompts}) == 3
    assert all(prompt[:108] == probe.prompts[0][:108] for prompt in probe.prompts)
    assert max(map(len, probe_of(range(50), window=4096).prompts)) < 100
