"""Adapters side by side: each row as if its adapter were alone on the base, whoever shares its passes."""

import json
import random

import pytest
import torch
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file, save_file

from clawpipe.core.system.machine import _group_free
from clawpipe.errors import DataError
from clawpipe.model.engines.adapters import Adapter
from clawpipe.model.engines.continuous import ContinuousBatch
from clawpipe.model.engines.embedded import EmbeddedEngine
from clawpipe.model.engines.rows import Row, cache_budget_tokens
from clawpipe.model.engines.sampling import TurnSampling
from clawpipe.model.policy.base import resolve_base
from clawpipe.model.policy.load import load_base

SHARED = list(range(30, 70))


@pytest.fixture(scope="module", autouse=True)
def _one_thread():
    torch.set_num_threads(1)


@pytest.fixture(scope="module")
def base():
    return resolve_base("random").path


@pytest.fixture(scope="module")
def directories(base, tmp_path_factory):
    """Four adapters that change the model clearly: of other ranks, layers and scales."""
    kinds = [
        {"r": 4, "lora_alpha": 8, "target_modules": "all-linear"},
        {"r": 4, "lora_alpha": 8, "target_modules": "all-linear"},
        {"r": 2, "lora_alpha": 8, "target_modules": ["q_proj", "v_proj"], "use_rslora": True},
        {"r": 8, "lora_alpha": 4, "target_modules": ["down_proj"]},
    ]
    return [_adapter(base, tmp_path_factory.mktemp("adapter"), seed, kind) for seed, kind in enumerate(kinds)]


def _adapter(base, directory, seed, kind):
    torch.manual_seed(seed)
    model = get_peft_model(load_base(base, "float32", torch.device("cpu")), LoraConfig(**kind, task_type="CAUSAL_LM"))
    for name, weight in model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(weight, std=0.1)
    model.save_pretrained(directory)
    return directory


@pytest.fixture
def engine(base):
    return EmbeddedEngine(base, None, device="cpu")


def _run(batch, rows):
    found = {row: [] for row in rows}
    for row in rows:
        batch.add(row)
    while not batch.idle:
        for row, token in batch.step():
            found[row].append(token.logprob)
    return found


def _rows(adapters, count=12):
    draw = random.Random(5)
    tails = [[draw.randrange(3, 200) for _ in range(draw.randrange(1, 9))] for _ in range(count)]
    sampling = TurnSampling(1.0, 10)
    return [Row([*SHARED, *tail], sampling, n, adapter=adapters[n % len(adapters)]) for n, tail in enumerate(tails)]


def test_each_row_has_the_log_probs_of_its_own_adapter(base, directories, engine):
    adapters = [*(Adapter(place, engine.model) for place in directories), None]
    rows = _rows(adapters)
    found = _run(ContinuousBatch(engine, 100_000), rows)
    alone = [EmbeddedEngine(base, place, device="cpu") for place in (*directories, None)]  # peft's own computation
    for number, row in enumerate(rows):
        expected = alone[number % len(alone)].score(row.history, len(row.prompt))
        assert found[row] == pytest.approx(expected, abs=2e-4)
        other = alone[(number + 1) % len(alone)].score(row.history, len(row.prompt))
        assert max(abs(one - two) for one, two in zip(found[row], other, strict=True)) > 0.01


def test_a_shared_prefix_is_not_taken_from_another_adapter(base, directories, engine):
    first, second = (Adapter(place, engine.model) for place in directories[:2])
    batch, sampling = ContinuousBatch(engine, 100_000), TurnSampling(1.0, 6)
    _run(batch, [Row([*SHARED, 5], sampling, 1, adapter=first)])  # ended: its keys and values are kept
    rows = [Row([*SHARED, 5], sampling, seed, adapter=adapter) for seed, adapter in ((2, second), (3, None), (4, first))]
    found = _run(batch, rows)
    assert [row.cached for row in rows] == [0, 0, 40]
    expected = EmbeddedEngine(base, directories[1], device="cpu").score(rows[0].history, len(rows[0].prompt))
    assert found[rows[0]] == pytest.approx(expected, abs=2e-4)


def test_a_plain_pass_with_an_adapter_is_that_of_peft(base, directories, engine):
    ids = [*SHARED, 7, 8, 9]
    expected = EmbeddedEngine(base, directories[2], device="cpu").score(ids, 3)
    assert engine.score_with(Adapter(directories[2], engine.model), ids, 3) == pytest.approx(expected, abs=2e-4)
    assert engine.score_with(None, ids, 3) == pytest.approx(EmbeddedEngine(base, None, device="cpu").score(ids, 3), abs=1e-5)


def test_an_adapter_costs_its_own_weights_alone(directories, engine):
    stored = sum(weight.nbytes for weight in load_file(directories[0] / "adapter_model.safetensors").values())
    assert Adapter(directories[0], engine.model).bytes == stored


def _changed(directory, to, settings, weights=None):
    config = json.loads((directory / "adapter_config.json").read_text())
    (to / "adapter_config.json").write_text(json.dumps(config | settings))
    save_file(weights or load_file(directory / "adapter_model.safetensors"), to / "adapter_model.safetensors")
    return to


@pytest.mark.parametrize("settings", [{"use_dora": True}, {"bias": "all"}, {"modules_to_save": ["lm_head"]}, {"peft_type": "IA3"}])
def test_other_kinds_of_adapters_are_refused(directories, engine, tmp_path, settings):
    with pytest.raises(DataError, match="LoRA on linear layers"):
        Adapter(_changed(directories[0], tmp_path, settings), engine.model)


def test_an_adapter_of_another_base_is_refused(directories, engine, tmp_path):
    weights = load_file(directories[0] / "adapter_model.safetensors")
    for found, words in (({name: torch.zeros(4, 3) for name in weights}, "another shape"), (_deeper(weights), "no linear layer")):
        with pytest.raises(DataError, match=words):
            Adapter(_changed(directories[0], tmp_path, {}, found), engine.model)


def _deeper(weights):
    return {name.replace("layers.0", "layers.99"): weight for name, weight in weights.items()}


def test_keys_and_values_take_a_quarter_of_free_memory(engine, monkeypatch):
    monkeypatch.setattr("clawpipe.model.engines.rows.free_memory", lambda: 4_000_000_000)
    monkeypatch.setattr("clawpipe.model.engines.rows._token_bytes", lambda _: 100_000)
    assert cache_budget_tokens(engine) == 10_000


def test_a_group_of_processes_has_what_its_limit_leaves(tmp_path):
    (tmp_path / "memory.current").write_text("700\n")
    (tmp_path / "memory.stat").write_text("anon 500\ninactive_file 200\n")
    (tmp_path / "memory.max").write_text("1000\n")
    assert _group_free(tmp_path) == 500
    (tmp_path / "memory.max").write_text("max\n")
    assert _group_free(tmp_path) > 2**60
