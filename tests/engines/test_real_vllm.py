"""A real vLLM server, started as a night starts one: `make test-vllm`. Without the Python of its environment these are skipped."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from clawpipe.core.config.engine import EngineSpec
from clawpipe.core.config.night import Model
from clawpipe.model.engines.base import Sampling
from clawpipe.model.engines.vllm import VllmEngine
from clawpipe.model.policy.agreement import Agreement, bound_of
from clawpipe.model.policy.load import load_policy
from clawpipe.model.policy.probe import probe_for
from clawpipe.model.policy.spec import PolicySpec, untrained_spec
from clawpipe.play.workers.compare import compare_engine
from clawpipe.play.workers.vllm_server import KEY, VllmServer

PYTHON = os.environ.get("CLAWPIPE_VLLM_PYTHON", "")
pytestmark = [pytest.mark.slow, pytest.mark.skipif(not PYTHON, reason="CLAWPIPE_VLLM_PYTHON names no Python with vLLM")]
# On a CPU a request with a seed must not have its prompt computed in parts: docs/engines.md.
WHOLE = ("--no-enable-chunked-prefill", "--max-num-batched-tokens", "2048")
SMALL = ("--enforce-eager", "--max-model-len", "1024", "--max-num-seqs", "16", "--max-loras", "2", *WHOLE)


@pytest.fixture(scope="module")
def policy() -> PolicySpec:
    return untrained_spec(Model(base="smollm2-135m-instruct")).model_copy(update={"policy_version": "0123456789abcdef"})


@pytest.fixture(scope="module")
def adapter(policy: PolicySpec, tmp_path_factory: pytest.TempPathFactory) -> Path:
    from peft import LoraConfig, get_peft_model

    torch.manual_seed(0)
    core = load_policy(Path(policy.base), None, "float32", torch.device("cpu"))
    model = get_peft_model(core, LoraConfig(r=8, target_modules="all-linear"))
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "lora_B" in name:
                weight.normal_(std=0.03)
    folder = tmp_path_factory.mktemp("adapter")
    model.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[VllmServer]:
    server = VllmServer(tmp_path_factory.mktemp("logs"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(KEY, server.key)
        patch.setenv("VLLM_CPU_KVCACHE_SPACE", "1")
        yield server
    server.stop()


def compared(engine: VllmEngine, policy: PolicySpec, adapter: Path | None = None) -> Agreement:
    model = load_policy(Path(policy.base), adapter, "float32", torch.device("cpu"))
    found = compare_engine(engine, model, probe_for(model, Path(policy.base)))
    print(f"{engine.described}{' with an adapter' if adapter else ''}: {found}")  # seen with pytest -s
    return found


def opened(server: VllmServer, policy: PolicySpec, adapter: Path | None = None, **settings) -> VllmEngine:
    placed = server.place(EngineSpec(name="vllm", python=PYTHON, **settings), policy)
    return VllmEngine(Path(policy.base), adapter, "float32", "cpu", "none", server=placed, version=policy.policy_version)


def test_float32_agrees_with_the_models_forward_pass(server, policy, adapter):
    base = opened(server, policy, arguments=SMALL)
    assert base.context == 1024
    assert compared(base, policy).within(bound_of("float32", "none"))
    sampling = Sampling(0.8, 16, stop_ids=(2,))
    prompts = probe_for(load_policy(Path(policy.base), None, "float32", torch.device("cpu")), Path(policy.base)).prompts
    turns = [base.begin([prompt]).sample({0: 7}, sampling)[0].ids for prompt in (prompts[0], prompts[0])]
    assert turns[0] == turns[1]
    many = base.begin([prompt * 8 for prompt in prompts] * 8).sample({row: row for row in range(8 * len(prompts))}, sampling)
    assert len(many) == 8 * len(prompts)  # far more tokens at once than it computes in one step
    adapted = opened(server, policy, adapter, arguments=SMALL)
    assert compared(adapted, policy, adapter).within(bound_of("float32", "none"))
    assert not compared(adapted, policy).within(bound_of("float32", "none"))  # which is how a stale one shows
    adapted.close()
    base.close()


def test_bfloat16_is_within_the_bound_and_raw_log_probs_are_not(server, policy):
    raw = (*SMALL, "--logprobs-mode", "raw_logprobs")  # what vLLM gives unless it is told otherwise
    engine = opened(server, policy, dtype="bfloat16", arguments=raw)
    found = compared(engine, policy)
    engine.close()
    assert not found.within(bound_of("bfloat16", "none"))
    assert found.kind == "raw"
    engine = opened(server, policy, dtype="bfloat16", arguments=SMALL)
    assert compared(engine, policy).within(bound_of("bfloat16", "none"))
    engine.close()
