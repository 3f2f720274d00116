"""Servers of adapters as engines: fakes that speak the protocols of vLLM and SGLang in front of the embedded engine."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from clawpipe.core.config.engine import EngineSpec
from clawpipe.core.config.night import Model
from clawpipe.model.engines.base import open_engine
from clawpipe.model.engines.lora_servers import LoraServers
from clawpipe.model.policy.load import load_policy
from clawpipe.model.policy.spec import PolicySpec, untrained_spec


@pytest.fixture(scope="module")
def policy() -> PolicySpec:
    return untrained_spec(Model(base="random")).model_copy(update={"policy_version": "0123456789abcdef"})


@pytest.fixture(scope="module")
def adapter(policy: PolicySpec, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An adapter that changes what the model says."""
    from peft import LoraConfig, get_peft_model

    torch.manual_seed(1)
    model = get_peft_model(
        load_policy(Path(policy.base), None, "float32", torch.device("cpu")), LoraConfig(r=2, target_modules="all-linear")
    )
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "lora_B" in name:
                weight.normal_(std=0.2)
    folder = tmp_path_factory.mktemp("adapter")
    model.save_pretrained(folder)
    return folder


@pytest.fixture
def opened() -> Iterator[Callable[..., LoraServers]]:
    """opened(kind, url, policy, ...): the engine, which is closed in the end."""
    engines: list[LoraServers] = []

    def run(kind: str, url: str | tuple[str, ...], policy: PolicySpec, **settings) -> LoraServers:
        engine = open_engine(EngineSpec(name=kind, url=url, **settings), policy, "cpu")  # type: ignore[arg-type]
        assert isinstance(engine, LoraServers)
        engines.append(engine)
        return engine

    yield run
    for engine in engines:
        engine.close()
