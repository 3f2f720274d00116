"""The trace of a model version to trajectories and task items, over two nights in a real store."""

from __future__ import annotations

import io
import json
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest
from rich.cells import cell_len
from rich.console import Console

from clawpipe.core.contracts.schema import schema_of
from clawpipe.core.store.artifacts import Store
from clawpipe.core.store.datasets import publish_dataset
from clawpipe.core.store.home import Home
from clawpipe.core.store.refs import DatasetRef, ModelRef, StepResult
from clawpipe.errors import DataError, NotFoundError
from clawpipe.record.lineage.record import build_lineage, write_lineage
from clawpipe.record.lineage.trace import trace, trace_version
from clawpipe.record.lineage.traced import Trace
from clawpipe.record.nights.status import NightStatus, entry
from clawpipe.record.reporting.terminal import print_trace


@dataclass(frozen=True)
class RegisteredVersion:
    """A version as the registry returns it."""

    policy: ModelRef
    night: str
    name: str = "agent"
    version: str = "2"
    aliases: tuple[str, ...] = ("champion",)
    deployed: tuple[str, ...] = ()


@dataclass
class FilledHome:
    """A home with nights of one round each."""

    home: Home
    nights: dict[str, ModelRef] = field(default_factory=dict)

    @property
    def store(self) -> Store:
        return Store(self.home.store)

    def items(self, *questions: str) -> DatasetRef:
        rows = [
            {
                "item_id": f"item{number}",
                "identity": f"thing/{number}",
                "environment": "shop",
                "kind": "tool-call",
                "split": "train",
            }
            | {"slice": "s", "truth": "{}", "ordinal": number, "messages": [self._message(question)]}
            for number, question in enumerate(questions)
        ]
        return publish_dataset(self.store, "task_items", [pa.Table.from_pylist(rows, schema=schema_of("task_items"))])

    def _message(self, question: str) -> dict:
        return {"role": "user", "content": question, "tool_calls": [], "tool_call_id": None, "name": None}

    def samples(self, used: list[tuple[str, str]], parents: list[str]) -> DatasetRef:
        plain = {
            "group_id": "g",
            "policy_version": "p",
            "renderer_digest": "r",
            "rollout_index": 0,
            "token_ids": [1],
            "weight": 1.0,
        }
        streams = {"loss_mask": [True], "logprobs": [-1.0], "advantages": [1.0], "prompt_tokens": 1, "temperature": 1.0}
        rows = [{"item_id": item, "trajectory_id": name} | plain | streams for item, name in used]
        table = pa.Table.from_pylist(rows, schema=schema_of("samples"))
        return publish_dataset(self.store, "samples", [table], parents=parents)

    def night(self, name: str, items: DatasetRef, start: ModelRef, used: list[tuple[str, str]]) -> ModelRef:
        """A night that trains one adapter on `used`, pairs of item and trajectory."""
        raw = DatasetRef(name="trajectories", digest=name.encode().hex(), rows=9, parents=(items.digest, start.digest))
        samples = self.samples(used, [raw.digest, items.digest])
        adapter = start.model_copy(
            update={"name": "adapter", "digest": f"adapter-{name}", "adapter": True, "policy_version": name}
            | {"parents": (samples.digest, start.digest)}
        )
        results = {
            "make_items": StepResult(output=items, rows_out=items.rows),
            "round-1/generate_rollouts": StepResult(output=raw, rows_in=9, rows_out=9),
            "round-1/curate": StepResult(output=samples, rows_in=9, rows_out=samples.rows),
            "round-1/train": StepResult(output=adapter, rows_in=samples.rows, rows_out=samples.rows),
        }
        steps = [entry(step, False, 1.0, None, result) for step, result in results.items()]
        status = NightStatus(night=name, verdict="PROMOTE", steps=steps, policy_version=name, run_dir=str(self.home.runs / name))
        directory = self.home.runs / name
        directory.mkdir(parents=True)
        (directory / "night.json").write_text("{}")
        write_lineage(build_lineage(status, outside=[start]), directory)
        self.nights[name] = adapter
        return adapter


BASE = ModelRef(
    name="base",
    digest="b" * 64,
    base="b" * 64,
    base_name="tiny",
    tool_call_format="hermes",
    dtype="float32",
    policy_version="b",
    adapter=False,
)


@pytest.fixture
def filled(tmp_path: Path) -> FilledHome:
    """The second night starts from the champion that the first one made."""
    filled = FilledHome(Home(tmp_path / "home"))
    items = filled.items("how many kettles?", "how much is a lamp?", "is it raining?")
    first = filled.night("first", items, BASE, [("item0", "t0"), ("item0", "t1"), ("item1", "t2")])
    filled.night("second", items, first, [("item0", "u0"), ("item2", "u1")])
    return filled


def printed(found: Any) -> str:
    """What a terminal of 80 columns shows."""
    console = Console(width=80, file=io.StringIO())
    print_trace(found, console)
    return cast(io.StringIO, console.file).getvalue()


def second(filled: FilledHome) -> Trace:
    return trace(filled.home, "second", "adapter-second")


def test_every_training_names_its_trajectories_by_item(filled: FilledHome) -> None:
    found = second(filled)
    assert [(training.night, training.step, training.trajectories) for training in found.trainings] == [
        ("second", "round-1/train", {"item0": ["u0"], "item2": ["u1"]}),
        ("first", "round-1/train", {"item0": ["t0", "t1"], "item1": ["t2"]}),
    ]
    assert found.counts == {"trainings": 2, "samples": 5, "trajectories": 5, "items": 3}
    assert found.base is not None
    assert found.base.name == "tiny"


def test_items_are_told_with_their_question(filled: FilledHome) -> None:
    items = second(filled).items
    assert {name: item.question for name, item in items.items()} == {
        "item0": "how many kettles?",
        "item1": "how much is a lamp?",
        "item2": "is it raining?",
    }
    assert items["item1"].identity == "thing/1"


def test_the_chosen_round_is_told(filled: FilledHome) -> None:
    assert second(filled).choice is None
    path = filled.home.runs / "second" / "lineage.json"
    reason = "Round 1 of 2 is the candidate: round 2 lost calc, and of those left it has the best mean success (0.370)."
    path.write_text(json.dumps(json.loads(path.read_bytes()) | {"choice": reason}))
    found = trace_version(filled.home, RegisteredVersion(filled.nights["second"], "second"))
    assert found["choice"] == reason
    assert "Round 1 of 2 is the candidate: round 2 lost calc" in printed(found)


def test_the_first_night_alone(filled: FilledHome) -> None:
    found = trace(filled.home, "first", "adapter-first")
    assert found.counts == {"trainings": 1, "samples": 3, "trajectories": 3, "items": 2}
    assert {dataset.name for dataset in found.datasets} == {"task_items", "trajectories", "samples"}


def test_a_damaged_lineage_matters_only_where_it_is_needed(filled: FilledHome) -> None:
    (filled.home.runs / "second" / "lineage.json").write_text("{")
    assert trace(filled.home, "first", "adapter-first").counts["trajectories"] == 3
    with pytest.raises(DataError):
        second(filled)


def test_samples_that_are_gone_are_told_as_lost(filled: FilledHome) -> None:
    samples = filled.home.store / "samples" / trace(filled.home, "first", "adapter-first").trainings[0].samples.digest
    shutil.rmtree(samples)
    found = second(filled)
    assert [training.trajectories for training in found.trainings] == [{"item0": ["u0"], "item2": ["u1"]}, None]
    assert [dataset.digest for dataset in found.lost] == [samples.name]
    assert found.counts["trajectories"] == 2


def test_damaged_task_items_leave_the_ids(filled: FilledHome) -> None:
    [part] = (filled.home.store / "task_items").glob("*/part-00000.parquet")
    part.write_bytes(part.read_bytes()[:-1] + b"?")
    found = second(filled)
    assert found.items == {}
    assert [dataset.name for dataset in found.lost] == ["task_items"]
    assert found.counts["items"] == 3


def test_an_adapter_that_no_night_here_made(filled: FilledHome) -> None:
    with pytest.raises(NotFoundError):
        trace(filled.home, "second", "somebody-elses")
    with pytest.raises(NotFoundError):
        trace(filled.home, "third", "adapter-second")


def test_the_tree_fits_80_columns_and_elides(filled: FilledHome) -> None:
    items = filled.items("long " * 60, *(f"question {number}" for number in range(1, 9)))
    used = [(f"item{item}", f"{'t' * 40}{item}-{number}") for item in range(9) for number in range(4)]
    filled.night("third", items, BASE, used)
    text = printed(trace_version(filled.home, RegisteredVersion(filled.nights["third"], "third")))
    assert max(map(cell_len, text.splitlines())) <= 80
    assert "agent version 2 (champion)" in text
    assert "36 samples" in text
    assert "... 6 more items" in text
    assert text.count("... 2 more trajectories") == 3
    assert "tiny bbbbbbbb, untrained" in text


def test_json_holds_the_version_and_all_ids(filled: FilledHome) -> None:
    found = json.loads(json.dumps(trace_version(filled.home, RegisteredVersion(filled.nights["second"], "second"))))
    model = {"name": "agent", "version": "2", "aliases": ["champion"], "night": "second", "policy_version": "second"}
    assert found["model"] == model | {"deployed": []}
    assert [training["trajectories"] for training in found["trainings"]] == [
        {"item0": ["u0"], "item2": ["u1"]},
        {"item0": ["t0", "t1"], "item1": ["t2"]},
    ]
    assert found["items"]["item2"]["question"] == "is it raining?"


def test_the_path_of_a_file_is_whole_and_on_one_line(filled: FilledHome) -> None:
    found = trace_version(filled.home, RegisteredVersion(filled.nights["first"], "first"))
    file = f"/home/jane/{'long folder/' * 12}chats.jsonl"
    found["sources"] = {"t0": {"format": "chat", "file": file, "line": 7, "session": "s" * 90, "user": None}}
    [line] = [line for line in printed(found).splitlines() if "chats.jsonl" in line]
    assert line.endswith(f" {file}:7")
