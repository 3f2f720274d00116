"""A tiny policy that has learnt something, in a store of the test's own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from peft import LoraConfig, get_peft_model

from clawpipe.core.config.night import Runtime
from clawpipe.core.config.quantization import Quantization
from clawpipe.core.store.artifacts import Store
from clawpipe.core.store.home import Home
from clawpipe.core.store.refs import ModelRef
from clawpipe.learn.training.model.adapter import save_adapter
from clawpipe.model.policy.base import BaseModel, resolve_base
from clawpipe.model.policy.load import load_base
from clawpipe.model.policy.version import adapter_ref, base_ref
from clawpipe.play.workers.pool import WorkerPool

TEXT = torch.arange(97, 123).repeat(2)[None]  # the alphabet, twice


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def base() -> BaseModel:
    """The built-in model of random weights."""
    return resolve_base("random")


@pytest.fixture
def store(home: Home) -> Store:
    return Store(home.store)


@pytest.fixture(scope="module")
def pool(quick_children: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[WorkerPool]:
    with WorkerPool(Runtime(device="cpu", workers=1), tmp_path_factory.mktemp("logs")) as pool:
        yield pool


@pytest.fixture(scope="session")
def learn(base: BaseModel) -> Callable[..., torch.nn.Module]:
    """learn(steps, rate, quantization, base): an adapter on a base, held so, that was taught a little of the alphabet."""

    def make(steps: int = 4, rate: float = 1e-2, quantization: Quantization = "none", base: Path = base.path) -> torch.nn.Module:
        core = load_base(base, "float32", torch.device("cpu"), quantization=quantization)
        torch.manual_seed(0)
        config = LoraConfig(r=4, lora_alpha=8, target_modules="all-linear", task_type="CAUSAL_LM")
        model = get_peft_model(core, config)
        optimizer = torch.optim.AdamW([weight for weight in model.parameters() if weight.requires_grad], lr=rate)
        for _ in range(steps):
            model(input_ids=TEXT, labels=TEXT).loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        return model.eval()

    return make


@pytest.fixture
def trained(base: BaseModel, store: Store, learn: Callable[..., torch.nn.Module]) -> Callable[..., ModelRef]:
    """trained(steps, rate, quantization): the same as a policy in the store."""

    def make(steps: int = 4, rate: float = 1e-2, quantization: Quantization = "none") -> ModelRef:
        start = base_ref("random", base.digest, "pythonic", "float32", quantization)

        def fill(directory: Path) -> dict:
            save_adapter(learn(steps, rate, quantization), directory, base.digest)
            return {"kind": "model", "name": "adapter", "base": base.digest, "calls": "pythonic", "dtype": "float32"}

        digest, _ = store.publish("adapter", fill)
        return adapter_ref(start, digest, [])

    return make
