"""Simulated nights for trackers."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from clawpipe.core.config.night import Gate
from clawpipe.core.contracts import schema_of
from clawpipe.core.store.artifacts import Store
from clawpipe.core.store.datasets import publish_dataset
from clawpipe.core.store.home import Home
from clawpipe.core.store.refs import DatasetRef, ModelRef, StepResult
from clawpipe.learn.evaluation.verdict.gate import decide
from clawpipe.learn.evaluation.verdict.verdict import Evidence, ItemOutcome, ModelOutcomes, Verdict
from clawpipe.model.policy.version import adapter_ref, base_ref
from clawpipe.record.nights.status import StepEntry
from clawpipe.record.registry.tracking import Tracking
from clawpipe.record.tracking.sinks import Sink
from clawpipe.record.tracking.tracker import NightTracker

NIGHT = "2030-01-02-abc"
NOLOAD = "ignore:The ``noload`` loader strategy is deprecated:DeprecationWarning"  # MLflow 3.17 with SQLAlchemy 2.1


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.filterwarnings(NOLOAD))


@pytest.fixture
def tracking(home: Home, empty_database: Path, monkeypatch: pytest.MonkeyPatch) -> Tracking:
    """An empty MLflow for one test."""
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    home.mlflow.mkdir(parents=True)
    shutil.copyfile(empty_database, home.mlflow / "mlflow.db")
    return Tracking.of(home, "agent")


@pytest.fixture
def store(home: Home) -> Store:
    return Store(home.store)


@pytest.fixture
def run_dir(home: Home) -> Path:
    directory = home.runs / NIGHT
    directory.mkdir(parents=True)
    return directory


@dataclass
class Telling:
    """A night reported to trackers in this process; `warnings` are those of the night."""

    tracker: NightTracker
    store: Store
    warnings: list[str]

    def scored(self, part: str, values: list[float]) -> None:
        self._finish(f"{part}/score", publish_scores(self.store, values))

    def updated(self, part: str, *updates: Mapping[str, float]) -> None:
        for facts in updates:
            self.tracker.updated(f"{part}/train", {"of": 9, **facts})

    def trained(self, part: str, updates: list[dict[str, float]], weights: float = 0.5) -> None:
        self._finish(f"{part}/train", publish_adapter(self.store, weights), updates=updates)

    def probed(self, part: str, *probes: dict[str, float]) -> None:
        self._finish(f"{part}/probe", None, probes=list(probes))

    def judged(self) -> Verdict:
        verdict = verdict_of()
        self._finish("gate", None, **verdict.model_dump(mode="json"))
        return verdict

    def _finish(self, name: str, output: DatasetRef | ModelRef | None, **details: Any) -> None:
        result = StepResult(output=output, details=details)
        entry = StepEntry(
            name=name,
            state="ran",
            seconds=1.0,
            rows_in=0,
            rows_out=0,
            filtered={},
            key=None,
            digest=output.digest if output else None,
            artifacts={"output": output} if output else {},
            details=result.details,
        )
        self.tracker.finished(entry)


@pytest.fixture
def tell(store: Store, run_dir: Path) -> Callable[..., Telling]:
    """A process that runs the night, from its start."""

    def start(*sinks: Sink, checkpoints: bool = False) -> Telling:
        warnings: list[str] = []
        return Telling(NightTracker(sinks, store, run_dir, warnings.append, checkpoints=checkpoints), store, warnings)

    return start


@dataclass
class Memory:
    """A tracker that keeps everything in memory, and fails for more once `full` is reached."""

    name: str = "memory"
    away: str = "make room"
    full: int | None = None
    curve: list[tuple[int, dict[str, float]]] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)
    verdicts: list[str] = field(default_factory=list)
    probes: list[dict[int, Mapping[str, float]]] = field(default_factory=list)

    def open(self, attempt: int) -> int:
        return max((step for step, _ in self.curve), default=0)

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        if self.full == len(self.curve):
            raise OSError("no room at http://me:secret@example")
        self.curve.append((step, dict(metrics)))

    def keep(self, part: str, directory: Path) -> None:
        self.kept.append(part)

    def probed(self, curve: Mapping[int, Mapping[str, float]]) -> None:
        self.probes.append(dict(curve))

    def conclude(self, verdict: Verdict) -> None:
        self.verdicts.append(str(verdict.decision))

    def close(self, *, failed: bool) -> None: ...


@pytest.fixture
def memory() -> Memory:
    return Memory()


def publish_scores(store: Store, values: list[float]) -> DatasetRef:
    rows = [
        {
            "trajectory_id": f"t{number}",
            "turn": None,
            "scorer": "verifier",
            "origin": "verifier",
            "value": value,
            "success": value > 0.5,
            "reason": "",
            "evidence": "{}",
        }
        for number, value in enumerate(values)
    ]
    return publish_dataset(store, "scores", [pa.Table.from_pylist(rows, schema=schema_of("scores"))])


def publish_adapter(store: Store, value: float) -> ModelRef:
    base = base_ref("tiny", "b" * 64, "pythonic", "float32")
    facts = {"kind": "model", "name": "adapter", "base": base.base, "calls": base.tool_call_format, "dtype": base.dtype}

    def fill(directory: Path) -> dict[str, Any]:
        (directory / "adapter_model.safetensors").write_text(str(value))
        return facts

    return adapter_ref(base, store.publish("adapter", fill)[0], [])


def verdict_of() -> Verdict:
    def outcomes(version: str, solved: int) -> ModelOutcomes:
        return ModelOutcomes(
            policy_version=version, items={f"{n}": ItemOutcome(success=n < solved, slice="all") for n in range(60)}
        )

    return decide(Evidence(base=outcomes("base", 10), candidate=outcomes("new", 40), served="new"), Gate())
