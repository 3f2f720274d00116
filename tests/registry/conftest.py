"""A real MLflow on SQLite, and real packages of a tiny adapter."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from clawpipe.config.night import Gate, NightConfig
from clawpipe.evaluation.gate import decide
from clawpipe.evaluation.verdict import Evidence, ItemOutcome, ModelOutcomes
from clawpipe.messages import ToolSpec
from clawpipe.policy.version import adapter_ref, base_ref
from clawpipe.registry.package import Package, write_package
from clawpipe.registry.tracking import Tracking
from clawpipe.store.artifacts import Store
from clawpipe.store.home import Home
from clawpipe.store.refs import DatasetRef, ModelRef

BASE = base_ref("tiny", "b" * 64, "pythonic", "float32")
SAMPLES = DatasetRef(name="samples", digest="5" * 64, rows=12)


def adapter(store: Store, value: float = 0.5) -> ModelRef:
    """An adapter artefact as training leaves it; `value` makes it another model."""

    def fill(directory: Path) -> dict:
        save_file({"lora_A": np.full((2, 3), value, dtype=np.float32)}, directory / "adapter_model.safetensors")
        config = {"base_model_name_or_path": f"sha256:{BASE.base}", "peft_type": "LORA", "r": 2}
        (directory / "adapter_config.json").write_text(json.dumps(config))
        return {"kind": "model", "name": "adapter", "base": BASE.base, "calls": BASE.calls, "dtype": BASE.dtype}

    digest, _ = store.publish("adapter", fill)
    return adapter_ref(BASE, digest, [SAMPLES.digest])


def verdict_on(candidate: ModelRef):
    def outcomes(version: str, solved: int) -> ModelOutcomes:
        return ModelOutcomes(policy_version=version, items={f"{n}": ItemOutcome(success=n < solved, slice="all") for n in range(60)})

    base, better = outcomes(BASE.policy_version, 10), outcomes(candidate.policy_version, 40)
    return decide(Evidence(base=base, candidate=better, served=candidate.policy_version), Gate())


def facts(policy: ModelRef, night: str = "2030-01-02-abc") -> Package:
    return Package(
        key=policy.policy_version,
        model_name="agent",
        night=night,
        policy=policy,
        environment="shop",
        tools=(ToolSpec("stock", "How many are left?", {"item": "string"}),),
        datasets={"training": SAMPLES},
        config=NightConfig().model_dump(mode="json"),
        verdict=verdict_on(policy),
    )


@pytest.fixture
def store(home: Home) -> Store:
    return Store(home.store)


@pytest.fixture
def tracking(home: Home, monkeypatch: pytest.MonkeyPatch) -> Tracking:
    """A registry of the test's own, which does not exist yet."""
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    return Tracking.of(home, "agent")


@pytest.fixture(scope="session")
def empty_database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """MLflow's tables, made once: it takes seconds."""
    from clawpipe.registry.client import changes

    home = tmp_path_factory.mktemp("empty-registry")
    path = home / "mlflow.db"
    with changes(Tracking(uri=f"sqlite:///{path}", artifacts=str(home / "artifacts"), model_name="agent", home=home)):
        return path


@pytest.fixture
def registry(tracking: Tracking, empty_database: Path) -> Tracking:
    """A registry of the test's own with nothing in it."""
    assert tracking.database is not None
    tracking.database.parent.mkdir(parents=True)
    shutil.copyfile(empty_database, tracking.database)
    return tracking


@pytest.fixture
def new_package(store: Store, tmp_path: Path) -> Callable[..., Path]:
    """Write the package of an adapter whose weights are all `value`."""

    def write(value: float = 0.5, night: str = "2030-01-02-abc") -> Path:
        directory = tmp_path / f"package-{value}-{night}"
        write_package(directory, store, facts(adapter(store, value), night))
        return directory

    return write


@pytest.fixture
def package(new_package: Callable[..., Path]) -> Iterator[Path]:
    yield new_package()
