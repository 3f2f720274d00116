"""How fast is clawpipe's data plane, against polars, Hugging Face datasets and pandas, and against reading the files at all?

    python benchmarks/data_plane.py --out benchmarks/data_plane.json
    python benchmarks/data_plane.py --rows 10000000 --out benchmarks/data_plane_rows.json
    python benchmarks/data_plane.py --old-rows 1000000 --out benchmarks/data_plane_night.json

One job (data_plane_job.py) on one set of scored trajectories (data_plane_data.py): a million assistant turns. Each engine runs
in a separate process; engines take turns with the same number of threads (datasets: processes; pandas has neither), and
medians of their wall times count. All engines must first produce the same pairs, or there is no comparison. The timed part is
the work, without start and imports. clawpipe's time includes work that the others skip: it checks the digests of its inputs,
counts every filtered row by reason, and publishes its result synced, under its digest.

Claims: at least 10 times as fast as datasets, not slower than polars, the narrow phase (every step up to the one that reads tokens
and messages of the pairs) within 1.5 times and all of it within 2.5 times of a bare scan of the trajectories; ingest with
validation and quarantine (data_plane_ingest.py) at no less than 0.8 of the speed of plain DuckDB from JSON to Parquet.

With --rows instead: that many short trajectories, about 1 kB of payload each, through clawpipe alone, and a tenth of them
before that. Claims: within 1 GiB of resident memory, and ten times the rows in about ten times the time.

With --old-rows: that many short trajectories in a hundred datasets, and one more dataset (data_plane_night.py). Claim: the data
steps of a night over all of them cost under 5 % of their cost without results of the night before. `curation_` is the same
for curation alone.
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
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pyarrow as pa
from data_plane_data import SESSIONS, SHORT, Shape, write_sources
from data_plane_job import Done, Job, measure

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.core.store.artifacts import Store
from clawpipe.core.store.datasets import dataset_files

ENGINES = {
    "scan": ("data_plane_clawpipe", "scan_job"),
    "clawpipe": ("data_plane_clawpipe", "clawpipe_job"),
    "polars": ("data_plane_polars", "polars_job"),
    "pandas": ("data_plane_pandas", "pandas_job"),
    "hf_datasets": ("data_plane_pandas", "datasets_job"),
}
READERS = {"clawpipe_ingest": ("data_plane_ingest", "ingest_job"), "duckdb_json": ("data_plane_ingest", "duckdb_job")}
NIGHTS = {"added_night": ("data_plane_night", "added_job"), "whole_night": ("data_plane_night", "whole_job")}
_LINES = 20_000  # most lines of chat files, since ingest is measured by the line
GOALS = {
    "hf_datasets_over_clawpipe": (10.0, None),
    "polars_over_clawpipe": (1.0, None),
    "clawpipe_over_scan": (None, 2.5),
    "narrow_over_scan": (None, 1.5),
    "ingest_over_duckdb": (0.8, None),
    "peak_over_1_gib": (None, 1.0),
    "growth_over_linear": (None, 1.2),
    "one_percent_night_over_full": (None, 0.05),
}
_MEMORY = "512MB"  # DuckDB's buffers, with --rows; the process takes more


def main() -> int:
    arguments = _parser().parse_args()
    if arguments.measure:
        pa.set_cpu_count(arguments.threads)
        print(json.dumps(measure(*_engine(arguments.measure, sys.stdin.read()))))
        return 0
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory(dir=arguments.work) as directory:
        done = _scale if arguments.rows else _add_a_night if arguments.old_rows else _compare
        results, ratios = done(arguments, Path(directory))
    result = {"conditions": _conditions(arguments, load), "results": results, "ratios": ratios, "missed": _missed(ratios)}
    if arguments.out:
        known = json.loads(arguments.out.read_text()) if arguments.out.exists() else {}
        steps = {"steps": known["steps"]} if "steps" in known else {}  # of data_plane_rows.py
        arguments.out.write_text(json.dumps(result | steps, indent=2) + "\n")
    print(json.dumps(result) if arguments.json else json.dumps(result, indent=2))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--turns", type=int, default=1_000_000, help="assistant turns, about")
    parser.add_argument("--rows", type=int, help="trajectories, through clawpipe alone")
    parser.add_argument("--old-rows", type=int, help="trajectories of earlier nights, to which a hundredth is added")
    parser.add_argument("--only", nargs="+", choices=[*ENGINES, "ingest"], help="engines")
    parser.add_argument("--repeats", type=int, default=3, help="timed runs of each engine")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--work", type=Path, help="where a temporary directory for data is made; 10 million rows take 20 GB")
    parser.add_argument("--json", action="store_true", help="print one line of JSON")
    parser.add_argument("--out", type=Path, help="JSON file for the results")
    parser.add_argument("--measure", choices=[*ENGINES, *READERS, *NIGHTS], help=argparse.SUPPRESS)
    return parser


def _engine(name: str, request: str) -> tuple[Callable[..., Done], Any]:
    """Return the function of an engine, and its argument, parsed from JSON."""
    module, function = (ENGINES | READERS | NIGHTS)[name]
    work = import_module(module)
    return getattr(work, function), (work.Nights if name in NIGHTS else Job).model_validate_json(request)


def _compare(arguments: argparse.Namespace, directory: Path) -> tuple[JsonObject, dict[str, float]]:
    names = [name for name in ENGINES if not arguments.only or name in arguments.only]
    if "polars" in names and find_spec("polars") is None:
        sys.exit("polars is not installed: pip install 'clawpipe[bench]'")
    results: JsonObject = {}
    if names:
        job = _job(directory, int(arguments.turns / SESSIONS.mean_turns), SESSIONS, arguments.threads)
        results = {"rows": job.trajectories.rows} | _take_turns(names, job, arguments.repeats)
    ratios = _ratios(results)
    if not arguments.only or "ingest" in arguments.only:
        results["ingest"] = _compare_ingest(arguments, directory / "chat")
        ratios |= _ratios(results["ingest"])
    return results, ratios


def _compare_ingest(arguments: argparse.Namespace, directory: Path) -> JsonObject:
    from data_plane_ingest import write_lines

    rows = min(int(arguments.turns / SESSIONS.mean_turns), _LINES)
    job = _job(directory, rows, SESSIONS, arguments.threads)
    lines = directory / "chat.jsonl"
    count = write_lines(job.files["trajectories"], lines)
    job.files["lines"] = [lines]
    return {"lines": count, "bytes": lines.stat().st_size} | _take_turns(list(READERS), job, arguments.repeats)


def _scale(arguments: argparse.Namespace, directory: Path) -> tuple[JsonObject, dict[str, float]]:
    results = {}
    for rows in (arguments.rows // 10, arguments.rows):
        with tempfile.TemporaryDirectory(dir=directory) as place:
            job = _job(Path(place), rows, SHORT, arguments.threads, memory=_MEMORY)
            results[str(job.trajectories.rows)] = _take_turns(("scan", "clawpipe"), job, 1)
    small, large = (result["clawpipe"] for result in results.values())
    growth = large["median_seconds"] / small["median_seconds"] / 10
    return results, {"peak_over_1_gib": round(large["peak_mb"] / 1024, 3), "growth_over_linear": round(growth, 3)}


def _add_a_night(arguments: argparse.Namespace, directory: Path) -> tuple[JsonObject, dict[str, float]]:
    from data_plane_night import write_nights

    _say(f"writing {arguments.old_rows} trajectories, and a night over them")
    nights = write_nights(Store(directory / "store"), arguments.old_rows, SHORT, arguments.threads, _MEMORY, directory)
    results = _take_turns(list(NIGHTS), nights, 1)
    added, whole = results["added_night"], results["whole_night"]
    ratios = {
        "one_percent_night_over_full": added["median_seconds"] / whole["median_seconds"],
        "cpu_one_percent_night_over_full": added["median_cpu_seconds"] / whole["median_cpu_seconds"],
        "curation_one_percent_night_over_full": added["laps"]["curate"] / whole["laps"]["curate"],
    }
    return results, {name: round(ratio, 4) for name, ratio in ratios.items()}


def _job(directory: Path, rows: int, shape: Shape, threads: int, memory: str | None = None) -> Job:
    _say(f"writing {rows} trajectories")
    store = Store(directory / "store")
    sources = write_sources(store, rows, shape)
    files = {"trajectories": sources.trajectories, "scores": sources.scores, "items": sources.items}
    paths = {name: dataset_files(store, ref) for name, ref in files.items()}
    return Job(store=store.root, files=paths, threads=threads, memory=memory, work=directory, **files)


def _take_turns(names: Sequence[str], job: Any, repeats: int) -> JsonObject:
    """Return the figures of each engine, if all produce the same pairs."""
    runs: dict[str, list[JsonObject]] = {name: [] for name in names}
    for _ in range(repeats):
        for name in names:
            runs[name].append(_run(name, job))
            _require_equal(runs)
    return {name: _figures(made) for name, made in runs.items()}


def _run(name: str, job: Any) -> JsonObject:
    with tempfile.TemporaryDirectory(dir=job.work) as work:
        command = [sys.executable, __file__, "--measure", name, "--threads", str(job.threads)]
        threads = dict.fromkeys(("OMP_NUM_THREADS", "POLARS_MAX_THREADS"), str(job.threads))
        request = job.model_copy(update={"work": Path(work)}).model_dump_json()
        quiet = {"HF_HOME": work, "HF_DATASETS_OFFLINE": "1"}
        done = subprocess.run(command, input=request, stdout=subprocess.PIPE, text=True, env=os.environ | threads | quiet)
    if done.returncode:
        sys.exit(f"{name} failed")
    figures = json.loads(done.stdout.splitlines()[-1])
    _say(f"{name}: {figures['seconds']:.2f} s, CPU {figures['cpu_seconds']:.2f} s, {figures['peak_mb']:.0f} MB")
    return figures


def _require_equal(runs: Mapping[str, Sequence[Mapping[str, Any]]]) -> None:
    made = {name: [run["result"] for run in done] for name, done in runs.items() if name != "scan"}
    results = [result for done in made.values() for result in done]
    if any(result != results[0] for result in results):
        sys.exit(f"the engines do not come to the same result, so their times say nothing: {made}")


def _figures(made: Sequence[Mapping[str, Any]]) -> JsonObject:
    kept = ("seconds", "cpu_seconds", "load")
    figures = {name: [round(run[name], 3) for run in made] for name in kept}
    laps = {name: round(statistics.median(run["laps"][name] for run in made), 3) for name in made[0]["laps"]}
    medians = {f"median_{name}": statistics.median(figures[name]) for name in kept[:2]}
    peak = {"peak_mb": round(max(run["peak_mb"] for run in made), 1)}
    return figures | medians | peak | {"laps": laps, "result": made[0]["result"]}


def _ratios(results: Mapping[str, Any]) -> dict[str, float]:
    """Return ratios of median wall times, and of speeds for ingest; `cpu_` ratios are of median CPU seconds."""
    wanted = {f"{name}_over_clawpipe": (name, "clawpipe") for name in ("hf_datasets", "polars", "pandas")}
    wanted |= {"clawpipe_over_scan": ("clawpipe", "scan"), "ingest_over_duckdb": ("duckdb_json", "clawpipe_ingest")}
    ratios = {}
    for prefix, figure in (("", "median_seconds"), ("cpu_", "median_cpu_seconds")):
        for name, (over, under) in wanted.items():
            if over in results and under in results:
                ratios[prefix + name] = round(results[over][figure] / results[under][figure], 3)
    if "clawpipe" in results and "scan" in results:
        ratios["narrow_over_scan"] = round(results["clawpipe"]["laps"]["narrow"] / results["scan"]["median_seconds"], 3)
    return ratios


def _missed(ratios: Mapping[str, float]) -> list[str]:
    bounds = {name: GOALS[name] for name in ratios if name in GOALS}
    return [
        name
        for name, (least, most) in bounds.items()
        if (least is not None and ratios[name] < least) or (most is not None and ratios[name] > most)
    ]


def _conditions(arguments: argparse.Namespace, load: float) -> JsonObject:
    libraries = [name for name in ("duckdb", "pyarrow", "polars", "pandas", "datasets") if find_spec(name)]
    return {
        "turns": None if arguments.rows or arguments.old_rows else arguments.turns,
        "rows": arguments.rows,
        "old_rows": arguments.old_rows,
        "repeats": 1 if arguments.rows or arguments.old_rows else arguments.repeats,
        "threads": arguments.threads,
        "cores": os.cpu_count(),
        "load_before": load,
        "load_after": os.getloadavg()[0],
        "machine": platform.machine(),
        "python": platform.python_version(),
        "libraries": {name: version(name) for name in libraries},
    }


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
