"""How much do commands that read a home slow down as nights add up? CPU seconds of each command at 10, 100 and 1,000 nights.

    python benchmarks/nights.py [--nights 10,100,1000] [--json] [NAME ...]

The homes are made here, without training: each night ingested 60 conversations, scored and chose them, trained an adapter from the
champion, was compared with it on 160 items, registered a version and promoted it. So the last champion descends from all others.
A command's figure is the CPU time of its process, with imports; the least of three rounds, since other work only adds. A round runs
it on all homes in turn, so that a busy machine is as busy for each.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pyarrow as pa

from clawpipe.core.basics.json_types import JsonObject, Row
from clawpipe.core.config import NightConfig, load_config
from clawpipe.core.contracts.schema import schema_of
from clawpipe.core.store.datasets import publish_dataset
from clawpipe.core.store.home import Home
from clawpipe.core.store.open import open_store
from clawpipe.core.store.refs import DatasetRef, ModelRef, StepResult
from clawpipe.data.ingest.intake.state import IngestState, log_file, save
from clawpipe.learn.evaluation.verdict.looks import Looks
from clawpipe.record.lineage.record import build_lineage, write_lineage
from clawpipe.record.nights.record import create_record
from clawpipe.record.nights.status import NightStatus, RegisteredModel, StepEntry, entry, write_status
from clawpipe.record.registry.client import changes
from clawpipe.record.registry.promotions import promote
from clawpipe.record.registry.tags import internal
from clawpipe.record.registry.tracking import Tracking

ROOT = Path(__file__).parents[1]
MODEL, ENVIRONMENT = "agent", "letters"
CHATS, ITEMS, RUNS = 60, 160, 3
PLAN = ("plan", "--config", str(ROOT / "configs" / "tiny.yaml"), "-o", "rollouts=null", "-o", f"registry.model_name={MODEL}")
COMMANDS = {
    "status": ("status",),
    "status of the first night": ("status", "--night", "{first}"),
    "runs list": ("runs", "list"),
    "models list": ("models", "list"),
    "report of all": ("report", "--all"),
    "metrics": ("metrics",),
    "datasets waiting": ("datasets", "waiting", "--model", MODEL),
    "datasets list": ("datasets", "list"),
    "datasets list, all": ("datasets", "list", "--json"),
    "datasets show": ("datasets", "show", "{samples}"),
    "trace of version 1": ("trace", f"{MODEL}@1", "--json"),
    "trace of the champion": ("trace", f"{MODEL}@champion", "--json"),
    "trace of a session": ("trace", "--session", "session-1-1"),
    "forget, dry run": ("forget", "--session", "session-1-1", "--dry-run"),
    "gc, dry run": ("gc", "--dry-run"),
    "plan of new data": (*PLAN, "-o", "trajectories=[new]"),
}
LINEAR = ("datasets list, all", "trace of the champion", "report of all")  # what they print grows with the nights
SEARCHES = ("trace of a session", "forget, dry run", "gc, dry run")  # they look at every artifact
NOTHING: JsonObject = {}
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


@dataclass
class SyntheticHome:
    """A home to which nights are added."""

    home: Home
    champion: ModelRef = BASE
    nights: int = 0

    def __post_init__(self) -> None:
        self.store, self.tracking = open_store(self.home), Tracking.of(self.home, MODEL)
        self.ledger, self.state = Looks(self.home.root, MODEL, ENVIRONMENT), IngestState()
        self.first: dict[str, str] = {}

    def grow(self, nights: int) -> None:
        """Add nights up to this number, and one import that no night has used."""
        while self.nights < nights:
            self._night(self.nights)
            self.nights += 1
        save(log_file(self.home, "all"), self.state.with_run({}, {"trajectories": self._trajectories(self.nights).digest}))

    def _night(self, number: int) -> None:
        raw = self._trajectories(number)
        self.state = self.state.with_run({}, {"trajectories": raw.digest})
        config = _config(number, raw)
        record = create_record(self.home, config, None)
        scores = self._publish("scores", [_score(number, row) for row in range(CHATS)], raw)
        samples = self._publish("samples", [_sample(number, row) for row in range(CHATS)], raw, scores)
        results = [self._publish("eval_results", _answers(number, role), samples) for role in ("champion", "candidate")]
        before, self.champion = self.champion, self._trained(number, samples)
        steps = [_entry("draw_heldout", results[0], {"available": 10**6})]
        steps += [_entry("validate", raw), _entry("score", scores), _entry("round-1/curate", samples)]
        steps += [_entry("round-1/train", self.champion)]
        steps += [_entry(f"evaluate/{role}", ref) for role, ref in zip(("champion", "candidate"), results, strict=True)]
        for step in steps:
            self._write_record(f"{step.name.replace('/', '-')}-{number}", step)
        found = self._register(record.night, samples)
        status = NightStatus(
            night=record.night,
            verdict="PROMOTE",
            steps=steps,
            model=RegisteredModel(name=MODEL, version=found, digest=self.champion.digest, aliases=["champion"]),
            policy_version=self.champion.policy_version,
            run_dir=str(self.home.runs / record.night),
        )
        write_status(status)
        write_lineage(build_lineage(status, outside=[before, raw]), self.home.runs / record.night)
        self.ledger.record(record.night, record.night, [f"user/{number}-{item}" for item in range(ITEMS)])
        promote(self.tracking, found, who=f"night {record.night}", reason="x" * 400, night=record.night, forced=True)
        if not number:
            self.first = {"first": record.night, "samples": samples.digest}

    def _trajectories(self, number: int) -> DatasetRef:
        return self._publish("trajectories", [_trajectory(number, row) for row in range(CHATS)])

    def _publish(self, name: str, rows: list[Row], *parents: DatasetRef) -> DatasetRef:
        table = pa.Table.from_pylist(rows, schema=schema_of(name))
        return publish_dataset(self.store, name, [table], parents=[ref.digest for ref in parents])

    def _trained(self, number: int, samples: DatasetRef) -> ModelRef:
        def fill(directory: Path) -> JsonObject:
            (directory / "adapter.safetensors").write_text(str(number))
            return {"kind": "adapter", "name": "adapter"}

        digest, _ = self.store.publish("adapter", fill)
        facts = {"name": "adapter", "digest": digest, "adapter": True, "policy_version": f"policy-{number}"}
        return self.champion.model_copy(update=facts | {"parents": (samples.digest, self.champion.digest)})

    def _write_record(self, key: str, step: StepEntry) -> None:
        """Write a step's record as Prefect does."""
        result = StepResult(output=step.artifacts["output"], rows_in=step.rows_in, rows_out=step.rows_out)
        body = {"__class__": "clawpipe.core.store.refs.StepResult", "data": result.model_dump(mode="json")}
        record = {"metadata": {"serializer": {"type": "json"}}, "result": json.dumps(body)}
        self.home.steps.mkdir(parents=True, exist_ok=True)
        (self.home.steps / key).write_text(json.dumps(record))

    def _register(self, night: str, samples: DatasetRef) -> str:
        """Register a version as a night does, without its files; return its number."""
        facts = {"key": night, "model_id": f"m-{night}", "package": "f" * 64, "policy": self.champion.model_dump_json()}
        facts |= {"night": night, "dataset.round-1": samples.digest}
        tags = {internal(name): value for name, value in facts.items()}
        with changes(self.tracking) as client:
            if not client.search_registered_models(f"name='{MODEL}'"):
                client.create_registered_model(MODEL)
            return str(client.create_model_version(MODEL, "somewhere", tags=tags).version)


def _config(number: int, raw: DatasetRef) -> NightConfig:
    wanted = ["rollouts=null", f"registry.model_name={MODEL}", f"night=night-{number:04d}", f"trajectories=[{raw.digest}]"]
    return load_config(ROOT / "configs" / "tiny.yaml", wanted)


def _said(role: str, text: str) -> Row:
    return {"role": role, "content": text, "tool_calls": [], "tool_call_id": None, "name": None}


def _trajectory(number: int, row: int) -> Row:
    name = f"{number}-{row}"
    return {
        "trajectory_id": f"trajectory-{name}",
        "item_id": f"item-{name}",
        "group_id": f"item-{name}",
        "rollout_index": 0,
        "environment": "imported",
        "split": "train",
        "source": "imported",
        "messages": [_said("user", f"What does {name} cost? {'x' * 200}"), _said("assistant", f"{name} costs 7. {'y' * 200}")],
        "token_ids": [],
        "loss_mask": [],
        "logprobs": [],
        "prompt_tokens": 0,
        "turns": [],
        "temperature": 1.0,
        "seed": 0,
        "finish_reason": "stop",
        "tokens": "none",
        "session_id": f"session-{name}",
        "user_id": f"user-{row}",
        "origin": {"format": "chat", "file": f"/logs/{number}.jsonl", "line": row},
    }


def _score(number: int, row: int) -> Row:
    told = {"turn": None, "scorer": "s", "origin": "user", "value": 1.0, "success": True, "reason": "", "evidence": "{}"}
    return told | {"trajectory_id": f"trajectory-{number}-{row}"}


def _sample(number: int, row: int) -> Row:
    name, streams = f"{number}-{row}", {"token_ids": [1, 2], "loss_mask": [False, True], "logprobs": [0.0, -1.0]}
    names = {"trajectory_id": f"trajectory-{name}", "item_id": f"item-{name}", "group_id": f"item-{name}/p"}
    plain = {
        "policy_version": "p",
        "renderer_digest": "r",
        "rollout_index": 0,
        "prompt_tokens": 1,
        "temperature": 1.0,
        "weight": 1.0,
    }
    return names | streams | plain | {"advantages": [0.0, 1.0]}


def _answers(number: int, role: str) -> list[Row]:
    told = {"policy_version": role, "slice": "s", "trajectory_id": None, "error": None, "seed": number}
    return [told | {"item_id": f"heldout-{number}-{item}"} for item in range(ITEMS)]


def _entry(step: str, ref: DatasetRef | ModelRef, details: JsonObject = NOTHING) -> StepEntry:
    return entry(step, False, 1.0, None, StepResult(output=ref, rows_in=CHATS, rows_out=CHATS, details=details))


def seconds(homes: Mapping[int, Path], words: Sequence[str]) -> dict[str, float]:
    """Return the CPU seconds of one command by number of nights: the least of several rounds."""
    rounds = [{count: _once(home, words) for count, home in homes.items()} for _ in range(RUNS)]
    return {str(count): round(min(figures[count] for figures in rounds), 2) for count in homes}


def _once(home: Path, words: Sequence[str]) -> float:
    env = os.environ | {"CLAWPIPE_HOME": str(home), "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run([sys.executable, "-m", "clawpipe", *words], cwd=ROOT, env=env, capture_output=True, text=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        raise SystemExit(f"clawpipe {' '.join(words)} ended with {done.returncode}:\n{done.stderr[-2000:]}")
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def measure(counts: Sequence[int], names: Sequence[str]) -> dict[str, dict[str, float]]:
    """Return CPU seconds by command and number of nights."""
    found: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as scratch:
        grown = SyntheticHome(Home(Path(scratch) / "grown"))
        homes = {count: Path(scratch) / str(count) for count in sorted(counts)}
        for count, home in homes.items():
            grown.grow(count)
            shutil.copytree(grown.home.root, home)
        for name in names:
            found[name] = seconds(homes, [word.format_map(grown.first) for word in COMMANDS[name]])
            print(name, found[name], file=sys.stderr)
    return found


def table(found: JsonObject) -> str:
    """Return the seconds as a table of Markdown; the last column is the last figure over the first."""
    counts = [str(count) for count in found["conditions"]["nights"]]
    lines = [f"| CPU seconds at | {' | '.join(counts)} nights | ratio |", f"|---|{'---|' * (len(counts) + 1)}"]
    for name, figures in found["seconds"].items():
        shown = " | ".join(f"{figures[count]:.1f}" for count in counts)
        lines.append(f"| {name} | {shown} | {figures[counts[-1]] / figures[counts[0]]:.1f} |")
    return "\n".join(lines)


def conditions(counts: Sequence[int]) -> dict[str, Any]:
    packages = {name: version(name) for name in ("duckdb", "mlflow", "pyarrow", "pydantic")}
    return {"nights": sorted(counts), "chats_a_night": CHATS, "cpu": platform.machine(), "cores": os.cpu_count()} | packages


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", choices=[[], *COMMANDS], metavar="NAME", help="commands to measure; all by default")
    parser.add_argument("--nights", default="10,100,1000", help="numbers of nights, separated by commas")
    parser.add_argument("--json", action="store_true", help="print JSON in place of the table")
    wanted = parser.parse_args()
    counts = [int(count) for count in wanted.nights.split(",")]
    found = {"conditions": conditions(counts), "seconds": measure(counts, wanted.names or list(COMMANDS))}
    print(json.dumps(found, indent=2) if wanted.json else table(found))


if __name__ == "__main__":
    main()
