"""What does a further agent cost on one machine? Prints the memory of `clawpipe up` with 1, 10 and 50 models.

    python benchmarks/agents_idle.py --json > benchmarks/agents_idle.json
    python benchmarks/agents_idle.py --counts 1 --nights 5

Each count gets a fresh home with a config for each model. `up` runs them under one Prefect server, one MLflow server and one store,
and memory is read once its services have been idle for a while: the sum of PSS over its processes, in which a shared page counts
once. A further agent's cost is the slope from the smallest to the largest count. What one that is served costs, as an adapter on a
shared engine, is in adapters.json.

With --nights so many whole nights of different models in one home, started by hand at the same time, beside `up`. Claims: a further
agent costs at most 20 MB of idle memory; and of nights at once none ends with 75, and all begin before the first ends.
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
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import psutil
import yaml

from clawpipe.core.basics.json_types import JsonObject

ROOT = Path(__file__).parents[1]
COUNTS = (1, 10, 50)
GOAL_MB = 20.0
_IDLE_SECONDS = 45.0
_START_SECONDS, _STOP_SECONDS = 900.0, 300.0


def write_configs(directory: Path, count: int) -> list[Path]:
    """Write the tiny night for so many models, each with a label of its own each night and a seed of its own."""
    tiny = yaml.safe_load((ROOT / "configs" / "tiny.yaml").read_text(encoding="utf-8"))
    files = [directory / f"agent-{number:02}.yaml" for number in range(count)]
    for number, file in enumerate(files):
        own = tiny | {"night": "{date}", "seed": number, "registry": {"model_name": file.stem}}
        file.write_text(yaml.safe_dump(own), encoding="utf-8")
    return files


@contextmanager
def up(directory: Path, configs: Sequence[Path]) -> Iterator[psutil.Process]:
    """Run `clawpipe up` until it says that it is there."""
    named = [word for file in configs for word in ("--config", str(file))]
    log = directory / "up.log"
    with log.open("w") as out:
        process = subprocess.Popen(_command("up", *named), cwd=ROOT, env=_environment(directory), stdout=out, stderr=out)
        try:
            _await(lambda: "Ctrl-C stops everything" in log.read_text(), process, log)
            yield psutil.Process(process.pid)
        finally:
            process.terminate()
            process.wait(_STOP_SECONDS)


def idle_megabytes(process: psutil.Process) -> float:
    """Return the memory of a process and its children once they have been idle for a while."""
    time.sleep(_IDLE_SECONDS)
    everyone = [process, *process.children(recursive=True)]
    return sum(one.memory_full_info().pss for one in everyone) / 1e6


def of_services(counts: Sequence[int]) -> JsonObject:
    """Return the idle memory of `clawpipe up` by the number of models."""
    found: dict[int, float] = {}
    for count in counts:
        with tempfile.TemporaryDirectory() as name, up(Path(name), write_configs(Path(name), count)) as process:
            found[count] = idle_megabytes(process)
        print(f"{count}: {found[count]:.1f} MB", file=sys.stderr, flush=True)
    return _slope(found)


def of_nights(count: int) -> JsonObject:
    """Run nights of different models at once in one home, beside `clawpipe up`, and return how they ended."""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        configs = write_configs(directory, count)
        with up(directory, configs):
            began = time.monotonic()
            nights = [_night(directory, file) for file in configs]
            said = [json.loads(night.communicate()[0]) for night in nights]
            seconds = time.monotonic() - began
        records = [json.loads(file.read_bytes()) for file in (directory / "home" / "run-records").glob("*.json")]
    return {
        "nights": count,
        "exit_codes": [night.returncode for night in nights],
        "verdicts": [one.get("verdict") or one.get("what") for one in said],
        "seconds": round(seconds, 1),
        "all_began_before_the_first_ended": max(one["started"] for one in records) < min(one["ended"] for one in records),
    }


def _night(directory: Path, file: Path) -> subprocess.Popen[bytes]:
    words = _command("run", "--config", str(file), "--json")
    return subprocess.Popen(words, cwd=ROOT, env=_environment(directory), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)


def _slope(found: Mapping[int, float]) -> JsonObject:
    """Return the memory by count, and what one more costs between the smallest and the largest count."""
    least, most = min(found), max(found)
    further = (found[most] - found[least]) / (most - least) if most > least else None
    sizes = {str(count): round(size, 1) for count, size in found.items()}
    return {"megabytes": sizes, "further_agent_mb": None if further is None else round(further, 2)}


def _command(*words: str) -> list[str]:
    return [sys.executable, "-m", "clawpipe", *words]


def _environment(directory: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PREFECT_", "MLFLOW_", "CLAWPIPE_"))}
    return kept | {"CLAWPIPE_HOME": str(directory / "home")}


def _await(is_there: Callable[[], bool], process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while not is_there():
        if process.poll() is not None or time.monotonic() > deadline:
            raise SystemExit(f"it did not start:\n{log.read_text()[-3000:]}")
        time.sleep(0.5)


def claims(report: JsonObject) -> list[str]:
    """Return what does not hold."""
    services, nights = report["services"], report["nights"]
    wrong = []
    if (services["further_agent_mb"] or 0.0) > GOAL_MB:
        wrong.append(f"a further agent costs {services['further_agent_mb']} MB of idle memory")
    if nights and (any(nights["exit_codes"]) or not nights["all_began_before_the_first_ended"]):
        wrong.append("nights of different models waited for each other")
    return wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--counts", type=int, nargs="+", default=list(COUNTS))
    parser.add_argument("--nights", type=int, default=0)
    parser.add_argument("--json", action="store_true", help="print JSON")
    given = parser.parse_args()
    machine = {"cpus": os.cpu_count(), "python": platform.python_version(), "system": platform.platform()}
    report: JsonObject = {"machine": machine, "services": of_services(given.counts), "nights": None}
    if given.nights:
        report["nights"] = of_nights(given.nights)
    print(json.dumps(report, indent=1) if given.json else report)
    for wrong in claims(report):
        print(f"DOES NOT HOLD: {wrong}", file=sys.stderr)
    return int(bool(claims(report)))


if __name__ == "__main__":
    sys.exit(main())
