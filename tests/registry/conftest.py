"""A real MLflow on SQLite, and real packages of a tiny adapter."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from safetensors.numpy import save_file

from clawpipe.core.config.night import Gate, NightConfig
from clawpipe.core.conversation.messages import ToolSpec
from clawpipe.core.store.artifacts import Store
from clawpipe.core.store.home import Home
from clawpipe.core.store.refs import DatasetRef, ModelRef
from clawpipe.learn.evaluation.verdict.gate import decide
from clawpipe.learn.evaluation.verdict.verdict import Evidence, ItemOutcome, ModelOutcomes, Verdict
from clawpipe.model.policy.version import adapter_ref, base_ref
from clawpipe.record.registry.package import Package, write_package
from clawpipe.record.registry.tracking import Tracking

if TYPE_CHECKING:
    from mlflow import MlflowClient

BASE = base_ref("tiny", "b" * 64, "pythonic", "float32")
SAMPLES = DatasetRef(name="samples", digest="5" * 64, rows=12)


# MLflow 3.17 asks SQLAlchemy 2.1 for a loader that it has deprecated.
NOLOAD = "ignore:The ``noload`` loader strategy is deprecated:DeprecationWarning"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.filterwarnings(NOLOAD))


def publish_adapter(store: Store, value: float) -> ModelRef:
    """An adapter artifact as training leaves it."""

    def fill(directory: Path) -> dict:
        save_file({"lora_A": np.full((2, 3), value, dtype=np.float32)}, directory / "adapter_model.safetensors")
        config = {"base_model_name_or_path": f"sha256:{BASE.base}", "peft_type": "LORA", "r": 2}
        (directory / "adapter_config.json").write_text(json.dumps(config))
        return {"kind": "model", "name": "adapter", "base": BASE.base, "calls": BASE.tool_call_format, "dtype": BASE.dtype}

    digest, _ = store.publish("adapter", fill)
    return adapter_ref(BASE, digest, [SAMPLES.digest])


def verdict_on(candidate: ModelRef) -> Verdict:
    def outcomes(version: str, solved: int) -> ModelOutcomes:
        return ModelOutcomes(
            policy_version=version, items={f"{n}": ItemOutcome(success=n < solved, slice="all") for n in range(60)}
        )

    base, better = outcomes(BASE.policy_version, 10), outcomes(candidate.policy_version, 40)
    return decide(Evidence(base=base, candidate=better, served=candidate.policy_version), Gate())


@pytest.fixture
def store(home: Home) -> Store:
    return Store(home.store)


@pytest.fixture
def new_adapter(store: Store) -> Callable[..., ModelRef]:
    """Publish an adapter whose weights are all `value`."""
    return lambda value=0.5: publish_adapter(store, value)


@pytest.fixture
def facts() -> Callable[..., Package]:
    """The contents of a policy's package."""

    def of(policy: ModelRef, night: str = "2030-01-02-abc") -> Package:
        return Package(
            key=policy.policy_version,
            model_name="agent",
            night=night,
            compared="sft from tiny on 12 stored trajectories; compared with tiny on 60 held-out items",
            policy=policy,
            environment="shop",
            tools=(ToolSpec("stock", "How many are left?", {"item": "string"}),),
            datasets={"training": SAMPLES},
            config=NightConfig().model_dump(mode="json"),
            verdict=verdict_on(policy),
        )

    return of


@pytest.fixture
def tracking(home: Home, monkeypatch: pytest.MonkeyPatch) -> Tracking:
    """A registry for one test, which does not exist yet."""
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    return Tracking.of(home, "agent")


@pytest.fixture
def registry(tracking: Tracking, empty_database: Path) -> Tracking:
    """An empty registry for one test."""
    assert tracking.database is not None
    tracking.database.parent.mkdir(parents=True)
    shutil.copyfile(empty_database, tracking.database)
    return tracking


@pytest.fixture
def client(tracking: Tracking) -> MlflowClient:
    """MLflow's own view of the test's registry, which must exist."""
    from mlflow import MlflowClient

    assert tracking.exists
    return MlflowClient(tracking_uri=tracking.uri, registry_uri=tracking.uri)


@pytest.fixture
def new_package(
    store: Store, new_adapter: Callable[..., ModelRef], facts: Callable[..., Package], tmp_path: Path
) -> Callable[..., Path]:
    """Write the package of an adapter whose weights are all `value`."""

    def write(value: float = 0.5, night: str = "2030-01-02-abc") -> Path:
        directory = tmp_path / f"package-{value}-{night}"
        write_package(directory, store, facts(new_adapter(value), night))
        return directory

    return write


@pytest.fixture
def killed_at(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], AbstractContextManager[None]]:
    """A block that must end at the named fault point, as if killed there, but in the same process."""

    @contextmanager
    def block(wanted: str) -> Iterator[None]:
        def die(name: str, detail: str = "") -> None:
            if name == wanted:
                raise _Killed(name)

        with monkeypatch.context() as patch:
            patch.setattr("clawpipe.core.system.faults.kill_point", die)
            with pytest.raises(_Killed):
                yield

    return block


class _Killed(BaseException):
    """UserErrors past all error handlers, like SIGKILL."""


@pytest.fixture
def package(new_package: Callable[..., Path]) -> Path:
    return new_package()
