"""A home in which two people's sessions were read in, curated, trained on, registered and reported."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from clawpipe.core.config.night import NightConfig
from clawpipe.core.contracts.schema import schema_of
from clawpipe.core.store.artifacts import Store
from clawpipe.core.store.datasets import publish_dataset
from clawpipe.core.store.home import Home
from clawpipe.core.store.open import open_store
from clawpipe.core.store.refs import DatasetRef, ModelRef, StepResult
from clawpipe.record.lineage.record import build_lineage, write_lineage
from clawpipe.record.nights.record import create_record
from clawpipe.record.nights.status import NightStatus, entry, write_status
from clawpipe.record.registry.client import changes
from clawpipe.record.registry.tracking import Tracking

# MLflow 3.17 asks SQLAlchemy 2.1 for a loader that it has deprecated.
NOLOAD = "ignore:The ``noload`` loader strategy is deprecated:DeprecationWarning"
ANN = "My cat is called Brontosaurus-Quux-77"
BEN = "My dog is called Velociraptor-Blee-12"
BASE = ModelRef(
    name="base",
    digest="b" * 64,
    base="b" * 64,
    base_name="tiny",
    tool_call_format="hermes",
    dtype="float32",
    policy_version="base",
    adapter=False,
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.filterwarnings(NOLOAD))


def said(role: str, text: str) -> dict[str, Any]:
    return {"role": role, "content": text, "tool_calls": [], "tool_call_id": None, "name": None}


def imported(name: str, session: str | None, user: str | None, text: str, line: int, item: str = "") -> dict[str, Any]:
    """A row of an imported conversation."""
    item = item or f"item-{name}"
    return {
        "trajectory_id": name,
        "item_id": item,
        "group_id": item,
        "rollout_index": 0,
        "environment": "imported",
        "split": "train",
        "source": "imported",
        "messages": [said("user", text), said("assistant", f"Noted: {text}")],
        "token_ids": [],
        "loss_mask": [],
        "logprobs": [],
        "prompt_tokens": 0,
        "turns": [],
        "temperature": 1.0,
        "seed": 0,
        "finish_reason": "stop",
        "tokens": "none",
        "session_id": session,
        "user_id": user,
        "origin": {"format": "chat", "file": "/logs/all.jsonl", "line": line},
    }


def prompt(name: str, session: str | None, user: str | None, text: str) -> dict[str, Any]:
    """A row of an imported prompt."""
    plain = {"environment": "imported", "kind": "chat", "split": "train", "slice": "s", "truth": "{}", "ordinal": 0}
    return plain | {"item_id": name, "identity": name, "messages": [said("user", text)], "session_id": session, "user_id": user}


def sample(name: str) -> dict[str, Any]:
    """A row that was trained on."""
    streams = {"loss_mask": [False, True], "logprobs": [0.0, -1.0], "advantages": [0.0, 1.0], "token_ids": [1, 2]}
    plain = {
        "policy_version": "p",
        "renderer_digest": "r",
        "rollout_index": 0,
        "prompt_tokens": 1,
        "temperature": 1.0,
        "weight": 1.0,
    }
    return {"trajectory_id": name, "item_id": f"item-{name}", "group_id": f"item-{name}/p"} | streams | plain


def pair(name: str, chosen: str, rejected: str, text: str) -> dict[str, Any]:
    sides = {"prompt": [said("user", text)], "chosen": [said("assistant", "yes")], "rejected": [said("assistant", text)]}
    return {
        "pair_id": name,
        "item_id": "i",
        "group_id": "i",
        "chosen_id": chosen,
        "rejected_id": rejected,
        "tokens": "none",
    } | sides


@dataclass
class FilledHome:
    """A home and the datasets in it, by name."""

    home: Home
    refs: dict[str, DatasetRef] = field(default_factory=dict)
    nights: dict[str, str] = field(default_factory=dict)
    base: ModelRef = BASE
    ann: str = ANN  # what must not be found any more
    ben: str = BEN  # what must stay
    imported = staticmethod(imported)
    prompt = staticmethod(prompt)

    @property
    def store(self) -> Store:
        return open_store(self.home)

    def publish(self, name: str, rows: list[dict[str, Any]], *parents: str) -> DatasetRef:
        """Published in files of two rows."""
        schema = schema_of(name)
        tables = [pa.Table.from_pylist(rows[start : start + 2], schema=schema) for start in range(0, len(rows), 2)]
        self.refs[name] = publish_dataset(self.store, name, tables, parents=parents)
        return self.refs[name]

    def rows(self, name: str) -> list[dict[str, Any]]:
        """Rows of every dataset of this name that is in the store."""
        files = sorted((self.home.store / name).glob("*/*.parquet"))
        return [row for file in files for row in pq.read_table(file).to_pylist()]

    def bytes(self) -> Iterator[tuple[Path, bytes]]:
        """Every file below the home, and what a compressed one holds."""
        for path in sorted(self.home.root.rglob("*")):
            if path.is_file():
                yield path, path.read_bytes()
                if path.suffix == ".parquet":
                    yield path, json.dumps(pq.read_table(path).to_pylist()).encode()

    def holding(self, *texts: str) -> list[Path]:
        return [path for path, data in self.bytes() if any(text.encode() in data for text in texts)]

    def night(self, label: str, lesson: DatasetRef, start: ModelRef) -> ModelRef:
        """A night that trained an adapter on the stored trajectories, with everything that it leaves."""
        config = NightConfig(night=label, rollouts=None, trajectories=(self.refs["trajectories"].digest,))
        record = create_record(self.home, config, None)
        digest = f"{len(self.nights) + 1:064d}"
        facts = {"name": "adapter", "digest": digest, "adapter": True, "policy_version": label}
        adapter = start.model_copy(update=facts | {"parents": (lesson.digest, start.digest)})
        results = {
            "round-1/curate": StepResult(output=lesson, rows_in=4, rows_out=lesson.rows),
            "round-1/train": StepResult(output=adapter, rows_in=lesson.rows, rows_out=lesson.rows),
        }
        steps = [entry(step, False, 1.0, None, result) for step, result in results.items()]
        status = NightStatus(night=record.night, verdict="HOLD", steps=steps, policy_version=label)
        status = status.model_copy(update={"run_dir": str(self.home.runs / record.night)})
        write_status(status)
        directory = self.home.runs / record.night
        write_lineage(build_lineage(status, outside=[start, self.refs["trajectories"]]), directory)
        (directory / "report.html").write_text(f"<p>{ANN}</p><p>{BEN}</p>")
        (directory / "logs").mkdir()
        (directory / "logs" / "worker-0.log").write_text(f"begin\nrefused: {json.dumps(ANN)}\nend\n")
        self.home.steps.mkdir(exist_ok=True)
        for step, result in results.items():
            self.write_step(f"{step.rpartition('/')[2]}-{label}", result)
        self.nights[label] = record.night
        return adapter

    def write_step(self, key: str, result: StepResult) -> None:
        """As Prefect writes a record with its JSON serializer."""
        body = {"__class__": "clawpipe.core.store.refs.StepResult", "data": result.model_dump(mode="json")}
        record = {"metadata": {"serializer": {"type": "json"}}, "result": json.dumps(body)}
        (self.home.steps / key).write_text(json.dumps(record))

    def register(self, tracking: Tracking, label: str, policy: ModelRef, lesson: DatasetRef) -> str:
        """A version as a night registers one, without its files. Returns its number."""
        facts = {"key": label, "model_id": "m-1", "package": "f" * 64, "policy": policy.model_dump_json()}
        tags = {f"clawpipe.{name}": value for name, value in (facts | {"night": self.nights[label]}).items()}
        with changes(tracking) as client:
            if not client.search_registered_models(f"name='{tracking.model_name}'"):
                client.create_registered_model(tracking.model_name)
            tags["clawpipe.dataset.round-1"] = lesson.digest
            return str(client.create_model_version(tracking.model_name, "somewhere", tags=tags).version)


@pytest.fixture
def filled(home: Home) -> FilledHome:
    """Ann has two sessions, one of them in a row that does not name her; Ben has one. A rollout was made of Ann's question."""
    filled = FilledHome(home)
    asked_by_both = "What is the weather?"
    rows = [
        imported("a1", "sess-a", "ann", f"{ANN} one", 1),
        imported("b1", "sess-b", "ben", f"{BEN} one", 2),
        imported("a2", "sess-a2", "ann", f"{ANN} two", 3),
        imported("a3", "sess-a2", None, f"{ANN} three", 4),
        imported("a4", "sess-a", "ann", asked_by_both, 5, item="item-both"),
        imported("b2", "sess-b", "ben", asked_by_both, 6, item="item-both"),
        imported("r1", None, None, f"{ANN} one", 7, item="item-a1") | {"source": "rollout", "origin": None},
        imported("x1", "sess-a9", None, "Nobody's", 8),
    ]
    raw = filled.publish("trajectories", rows)
    score = {"turn": None, "scorer": "s", "origin": "user", "value": 1.0, "success": True, "reason": ANN, "evidence": "{}"}
    filled.publish("scores", [score | {"trajectory_id": "a1"}, score | {"trajectory_id": "b1", "reason": BEN}], raw.digest)
    filled.publish("samples", [sample(name) for name in ("a1", "a2", "b1", "x1")], raw.digest)
    filled.publish("preference_pairs", [pair("pair-a", "b1", "a2", ANN), pair("pair-b", "b1", "b2", BEN)], raw.digest)
    filled.publish("token_scores", [{"row_id": name} for name in ("pair-a", "pair-b")])
    quarantined = [
        {
            "dataset": "trajectories",
            "row_id": "/logs/all.jsonl:9@77",
            "reasons": ["not JSON"],
            "row": f'{{"session_id": "sess-a", {ANN}',
        },
        {"dataset": "trajectories", "row_id": "a2", "reasons": ["too long"], "row": json.dumps({"messages": ANN})},
        {"dataset": "samples", "row_id": "?", "reasons": ["odd"], "row": json.dumps({"trajectory_id": "r1", "text": ANN})},
        {"dataset": "trajectories", "row_id": "b9", "reasons": ["odd"], "row": json.dumps({"session_id": "sess-a-2", "text": BEN})},
    ]
    filled.publish("quarantine", quarantined)
    items = {"item-a1": ANN, "item-both": asked_by_both, "item-b1": BEN}
    filled.publish("task_items", [prompt(name, None, None, text) for name, text in items.items()])
    filled.publish(
        "eval_results",
        [{"policy_version": "p", "item_id": "item-a1", "slice": "s", "trajectory_id": "r1", "error": ANN, "seed": 0}],
    )
    memory = {
        "files": {"/logs/all.jsonl": {"size": 1}, "/logs/sess-a.jsonl": {"size": 2}},
        "datasets": {"trajectories": [raw.digest]},
    }
    (home.root / "ingest").mkdir()
    (home.root / "ingest" / "log.json").write_text(json.dumps(memory))
    (home.work / "shards").mkdir(parents=True)
    (home.work / "shards" / "fresh").write_text(ANN)
    return filled


@pytest.fixture
def tracking(filled: FilledHome, empty_database: Path) -> Tracking:
    """A registry in the filled's home with nothing in it."""
    tracking = Tracking.of(filled.home, "agent")
    assert tracking.database is not None
    tracking.database.parent.mkdir(parents=True)
    shutil.copyfile(empty_database, tracking.database)
    return tracking
