"""A registered version with a tiny adapter, and fakes of the services."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from clawpipe.core.store.artifacts import Store
from clawpipe.core.store.refs import ModelRef
from clawpipe.model.policy.version import adapter_ref
from clawpipe.record.registry.package import Package, write_package
from clawpipe.record.registry.runs import NightRun
from clawpipe.record.registry.tracking import Tracking
from clawpipe.record.registry.versions import ModelVersionInfo, register
from tests.fake_fireworks import KEY, FakeFireworks, fake_fireworks
from tests.registry.conftest import BASE, NOLOAD, SAMPLES, facts, registry, store, tracking

__all__ = ["facts", "registry", "store", "tracking"]
RUN = NightRun(night="2030-01-02-abc", params={}, metrics={}, datasets={})
PATH = "tinker://run:train:0/sampler_weights/adapter"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.filterwarnings(NOLOAD))


def adapter_of(store: Store, rank: int, remote: str | None) -> ModelRef:
    """An adapter artifact as training leaves it."""

    def fill(directory: Path) -> dict:
        save_file({"lora_A": np.full((rank, 3), 0.5, dtype=np.float32)}, directory / "adapter_model.safetensors")
        config = {"base_model_name_or_path": f"sha256:{BASE.base}", "peft_type": "LORA", "r": rank}
        config["target_modules"] = ["v_proj", "q_proj"]
        (directory / "adapter_config.json").write_text(json.dumps(config))
        return {"kind": "model", "name": "adapter", "base": BASE.base, "calls": BASE.tool_call_format, "dtype": BASE.dtype}

    digest, _ = store.publish("adapter", fill)
    return adapter_ref(BASE, digest, [SAMPLES.digest], remote)


@pytest.fixture
def registered(registry: Tracking, store: Store, facts: Callable[..., Package], tmp_path: Path) -> Callable[..., ModelVersionInfo]:
    """registered(rank, remote): a version of the model `agent`."""

    def make(rank: int = 8, remote: str | None = PATH) -> ModelVersionInfo:
        write_package(tmp_path / f"package-{rank}", store, facts(adapter_of(store, rank, remote)))
        return register(registry, tmp_path / f"package-{rank}", lambda copy: None, RUN)

    return make


@pytest.fixture
def fireworks(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeFireworks]:
    monkeypatch.setenv("FIREWORKS_API_KEY", KEY)
    monkeypatch.setattr("clawpipe.model.engines.servers.time.sleep", lambda seconds: None)
    with fake_fireworks() as service:
        yield service
