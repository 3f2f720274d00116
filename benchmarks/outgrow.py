"""What do a step, a record and a listing cost, and which wall does a night of many machines meet first? Prints both.

    python benchmarks/outgrow.py --json > benchmarks/outgrow.json

Measured here: a cached and an uncached step through a Prefect server of this machine; a home's shared file, a lease and a listing
of 1,000 step records in a storage that speaks S3 (moto's server on loopback, so without a network). Taken from the JSON files
beside it: tokens sampled and trained a second, megabytes imported, rows curated. Then arithmetic, no simulation: the time of each
part of a night for so many trajectories on so many machines, the longest part first. A part that is one process's, or one server's,
does not shrink with machines; that is the wall.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.core.ledger.lease import lease
from clawpipe.core.services.prefect_server import Api, environment, server
from clawpipe.core.services.service import running
from clawpipe.core.store.home import Home
from clawpipe.core.store.home_file import HomeFile
from clawpipe.core.store.machines import VARIABLE, shared_objects
from clawpipe.core.system.ports import LOOPBACK, free_port

HERE = Path(__file__).parent
STEPS, RECORDS, REPEATS = 60, 1000, 5
_FLOW = """
import sys, time
from prefect import flow
from clawpipe.core.store.refs import StepResult
from tasks.step import step

@step()
def costs(number: int) -> StepResult:
    return StepResult(rows_in=number)

@flow(persist_result=False)
def night(count: int) -> None:
    for _ in range(2):
        began = time.perf_counter()
        for number in range(count):
            costs.task(number=number)
        print((time.perf_counter() - began) / count, flush=True)

night(int(sys.argv[1]))
"""


def of_steps() -> JsonObject:
    """Return the seconds of a step that does nothing, run and cached, through a Prefect server in a fresh home."""
    with tempfile.TemporaryDirectory() as name:
        home, script = Home(Path(name) / "home"), Path(name) / "night.py"
        script.write_text(_FLOW)
        with server(home, free_port()) as (_, url):
            env = os.environ | environment(home, Api(url, private=True), home.logs / "flow.log") | {"PYTHONPATH": str(HERE.parent)}
            words = [sys.executable, str(script), str(STEPS)]
            done = subprocess.run(words, env=env, cwd=HERE.parent, stdout=subprocess.PIPE, text=True, check=True)
    run, cached = map(float, done.stdout.split())
    return {"run_seconds": round(run, 4), "cached_seconds": round(cached, 4)}


def of_storage() -> JsonObject:
    """Return the seconds of what machines of one home do in their storage."""
    port = free_port()
    with tempfile.TemporaryDirectory() as name:
        moto = [sys.executable, "-m", "moto.server", "-H", LOOPBACK, "-p", str(port)]
        with running("moto", moto, Path(name) / "moto.log", {}) as service:
            service.wait_healthy(f"http://{LOOPBACK}:{port}/", 120)
            _know(f"http://{LOOPBACK}:{port}")
            return _of_objects(Home(Path(name) / "home"))


def _know(url: str) -> None:
    import fsspec

    keys = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_DEFAULT_REGION": "us-east-1"}
    os.environ.update(keys | {"AWS_ENDPOINT_URL": url, VARIABLE: "s3://home/agents"})
    fsspec.filesystem("s3").mkdir("home")


def _of_objects(home: Home) -> JsonObject:
    shared = shared_objects()
    assert shared
    for number in range(RECORDS):
        shared.create(f"steps/{number:04}", b"{}")
    file = HomeFile(home, "ingest/log.json")

    def held() -> None:
        with lease(shared, "locks/a"):
            pass

    def written() -> None:
        file.read()
        file.write(b"{}")

    return {
        "listing_1000_seconds": _seconds(lambda: shared.names("steps")),
        "object_seconds": _seconds(lambda: shared.get("steps/0000")),
        "shared_file_seconds": _seconds(written),
        "lease_seconds": _seconds(held),
    }


def _seconds(work: Callable[[], object]) -> float:
    work()
    found = []
    for _ in range(REPEATS):
        began = time.perf_counter()
        work()
        found.append(time.perf_counter() - began)
    return round(median(found), 4)


def known_costs() -> JsonObject:
    """Return what other benchmarks have measured, on two cores."""
    training, ingest = _read("training")["workloads"]["demo_groups"], _read("ingest")["speed"]
    rows = _read("data_plane_rows")["results"]["10000000"]["clawpipe"]
    return {
        "sampled_tokens_per_second": round(_read("rollouts")["speed"]["tokens_per_second"]["embedded"], 1),
        "trained_row_tokens_per_second": round(training["row_tokens"] / median(training["clawpipe"]["seconds"]), 1),
        "imported_mb_per_second": round(ingest["mb"] / median(ingest["runs"]["clawpipe"]["seconds"]), 1),
        "curated_rows_per_second": round(10_000_000 / rows["median_seconds"]),
        "curation_peak_mb": rows["peak_mb"],
    }


def walls(
    costs: JsonObject, trajectories: int, machines: int, tokens: int, prompt: int, steps: int, megabytes: float
) -> JsonObject:
    """Return the hours of each part of a night, the longest first.

    Args:
        costs: measured ones, see `known_costs` and `of_steps`.
        tokens: sampled in a trajectory.
        prompt: other tokens of it, which training computes as well.
        steps: chunks of rollouts, each a step of Prefect's.
        megabytes: of imported logs.
    """
    seconds = {
        "sampling, on all machines": trajectories * tokens / costs["sampled_tokens_per_second"] / machines,
        "training, on one machine": trajectories * (tokens + prompt) / costs["trained_row_tokens_per_second"],
        "chunks, through one Prefect server": steps * costs["run_seconds"],
        "curation, in one process": trajectories / costs["curated_rows_per_second"],
        "imports, on one machine at a time": megabytes / costs["imported_mb_per_second"],
    }
    return {part: round(seconds[part] / 3600, 2) for part in sorted(seconds, key=lambda part: -seconds[part])}


def _read(name: str) -> JsonObject:
    return json.loads((HERE / f"{name}.json").read_text(encoding="utf-8"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print JSON")
    given = parser.parse_args()
    steps, storage, known = of_steps(), of_storage(), known_costs()
    machine = {"cpus": os.cpu_count(), "load": os.getloadavg()[0], "python": platform.python_version()}
    small = {"trajectories": 10_000, "machines": 1, "tokens": 24, "prompt": 250, "steps": 64, "megabytes": 100}
    large = small | {"trajectories": 10_000_000, "machines": 1000, "steps": 10_000, "megabytes": 20_000}
    nights = [{"night": night, "hours": walls(known | steps, **night)} for night in (small, large)]
    report = {"machine": machine, "measured": {"step": steps, "storage": storage}, "known": known, "nights": nights}
    print(json.dumps(report, indent=1) if given.json else report)


if __name__ == "__main__":
    main()
