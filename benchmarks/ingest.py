"""How fast does ingest read clean chat files, compared with DuckDB, and how much of other tools' files can it use?

    python benchmarks/ingest.py [--json] [--rows N] [--repeats N] [--out FILE] [NAME=PATH ...]

Claim: at least 0.3 of the speed, by wall time on two cores, at which DuckDB turns the same JSON Lines into Parquet without
checks (`over_duckdb_wall`). Both take turns, each in a separate process whose imports are not timed. Each NAME=PATH is a real
file, folder or pattern, ingested into a separate home; its lines and their results are counted.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from data_plane_data import SESSIONS, write_sources
from data_plane_ingest import duckdb_job, ingest_job, write_lines
from data_plane_job import Job, measure

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.core.store.artifacts import Store
from clawpipe.core.store.datasets import dataset_files
from clawpipe.core.store.home import Home
from clawpipe.data.ingest.intake.options import Options
from clawpipe.data.ingest.intake.run import ingest
from clawpipe.start.proposing.report import ingest_report

GOAL = 0.3
ENGINES = {"duckdb": duckdb_job, "clawpipe": ingest_job}
_COUNTED = (
    "lines",
    "accepted",
    "quarantined",
    "formats",
    "trajectories",
    "turns",
    "side_turns",
    "with_tokens",
    "silent",
    "redactions",
)
_ROWS = ("scores", "preferences", "items")


def main() -> int:
    arguments = _parser().parse_args()
    if arguments.measure:
        job = Job.model_validate_json(sys.stdin.read())
        print(json.dumps(measure(ENGINES[arguments.measure], job)))
        return 0
    result = {"conditions": _conditions(), "speed": _speed(arguments.rows, arguments.repeats), "files": _files(arguments.files)}
    if arguments.out:
        arguments.out.write_text(json.dumps(result, indent=2) + "\n")
    print(json.dumps(result) if arguments.json else json.dumps(result, indent=2))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("files", nargs="*", metavar="NAME=PATH", help="real files to ingest, with a name for each")
    parser.add_argument("--rows", type=int, default=200_000, help="conversations, of about 2 kB, to read for speed; 0 for none")
    parser.add_argument("--repeats", type=int, default=3, help="timed runs of each")
    parser.add_argument("--json", action="store_true", help="print one line of JSON")
    parser.add_argument("--out", type=Path, help="JSON file for the results")
    parser.add_argument("--measure", choices=ENGINES, help=argparse.SUPPRESS)
    return parser


def _conditions() -> JsonObject:
    return {"cores": len(os.sched_getaffinity(0)), "machine": platform.machine(), "load_before": round(os.getloadavg()[0], 2)}


def _speed(rows: int, repeats: int) -> JsonObject:
    if not rows:
        return {}
    with tempfile.TemporaryDirectory() as directory:
        job = _job(Path(directory), rows)
        runs = {name: [] for name in ENGINES}
        for name in [*ENGINES] * repeats:
            runs[name].append(_measured(name, job))
        size = job.files["lines"][0].stat().st_size
    return {"rows": rows, "mb": round(size / 1e6, 1)} | _ratios(runs) | {"goal": GOAL, "runs": _figures(runs)}


def _ratios(runs: Mapping[str, Sequence[Mapping[str, Any]]]) -> dict[str, float]:
    results = [run["result"] for made in runs.values() for run in made]
    if any(result != results[0] for result in results):
        sys.exit(f"the engines do not come to the same rows, so their times say nothing: {results}")
    return {f"over_duckdb_{name}": _ratio(runs, figure) for name, figure in (("wall", "seconds"), ("cpu", "cpu_seconds"))}


def _ratio(runs: Mapping[str, Sequence[Mapping[str, Any]]], figure: str) -> float:
    duckdb, clawpipe = (statistics.median(run[figure] for run in runs[name]) for name in ENGINES)
    return round(duckdb / clawpipe, 3)


def _figures(runs: Mapping[str, Sequence[Mapping[str, Any]]]) -> JsonObject:
    names = ("seconds", "cpu_seconds", "peak_mb", "load")
    return {engine: {name: [round(run[name], 2) for run in made] for name in names} for engine, made in runs.items()}


def _job(directory: Path, rows: int) -> Job:
    store = Store(directory / "store")
    sources = write_sources(store, rows, SESSIONS)
    trajectories, lines = dataset_files(store, sources.trajectories), directory / "chat.jsonl"
    write_lines(trajectories, lines)
    return Job(
        store=store.root,
        trajectories=sources.trajectories,
        scores=sources.scores,
        items=sources.items,
        files={"lines": [lines]},
        threads=len(os.sched_getaffinity(0)),
        work=directory,
    )


def _measured(name: str, job: Job) -> JsonObject:
    with tempfile.TemporaryDirectory(dir=job.work) as work:
        request = job.model_copy(update={"work": Path(work)}).model_dump_json()
        done = subprocess.run(
            [sys.executable, __file__, "--measure", name], input=request, stdout=subprocess.PIPE, text=True, check=True
        )
    figures = json.loads(done.stdout.splitlines()[-1])
    print(f"{name}: {figures['seconds']:.2f} s, CPU {figures['cpu_seconds']:.2f} s", file=sys.stderr)
    return figures


def _files(named: list[str]) -> JsonObject:
    return {name: _counts(path) for name, _, path in (word.partition("=") for word in named)}


def _counts(path: str) -> JsonObject:
    with tempfile.TemporaryDirectory() as directory:
        home = Home(Path(directory))
        found = ingest_report(home, ingest(home, [path], Options()))
    return {name: found[name] for name in _COUNTED} | {name: found[name]["rows"] for name in _ROWS if name in found}


if __name__ == "__main__":
    sys.exit(main())
