"""Does the tiny night learn on every seed and CPU? Prints a table of seeds, instruction sets and threads.

    python benchmarks/tiny.py --nights 6 --json > benchmarks/tiny.json

Claims: on every seed, with each of four ways to compute and with one and two threads, the gate promotes the candidate, and it
gains at least 0.4 (absolute) of held-out success; and so do whole nights, run by `clawpipe run` in a fresh home. The ways are
ATen's plain loops, its AVX2 loops, the CPU's best, and MKL's products for any x86 CPU; their float32 bits differ. Seeds of a way
run one after the other in one process. Seconds are from a shared machine and say little.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from demo_seeds import conditions

from clawpipe.core.basics.json_types import JsonObject

ROOT = Path(__file__).parents[1]
CONFIG = "configs/tiny.yaml"
GAIN = 0.4
WAYS: dict[str, dict[str, str]] = {
    "default": {"ATEN_CPU_CAPABILITY": "default"},
    "avx2": {"ATEN_CPU_CAPABILITY": "avx2"},
    "own": {},
    "compatible": {"MKL_CBWR": "COMPATIBLE"},
}
_COLUMNS = ("seed", "cpu", "threads", "base", "candidate", "gain", "verdict", "largest_ratio", "approx_kl", "seconds")


def environment(way: str, **others: str) -> dict[str, str]:
    """Return this process's environment with the settings that decide how `way` computes floats."""
    decide = ("ATEN_CPU_CAPABILITY", "MKL_CBWR", "ONEDNN_MAX_CPU_ISA")
    kept = {name: value for name, value in os.environ.items() if name not in decide}
    return kept | WAYS[way] | others


def trainings(way: str, threads: int, seeds: list[int]) -> Iterator[JsonObject]:
    """Yield one row per seed, all from one child process."""
    command = [sys.executable, "-W", "ignore", str(ROOT / "benchmarks" / "tiny_side.py"), str(threads), *map(str, seeds)]
    env = environment(way, OMP_NUM_THREADS=str(threads), OMP_WAIT_POLICY="passive")  # so that waiting threads do not spin
    with (
        tempfile.TemporaryFile("w+") as log,
        subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=log, text=True) as side,
    ):
        assert side.stdout
        for line in side.stdout:
            yield {"cpu": way, "threads": threads} | json.loads(line)
        if side.wait():
            log.seek(0)
            raise SystemExit(f"{way}, {threads} threads: exit code {side.returncode}\n{log.read()[-3000:]}")


def night(seed: int, way: str) -> JsonObject:
    """Return the row of a whole night in a fresh home, as shipped."""
    with tempfile.TemporaryDirectory() as home:
        command = [sys.executable, "-m", "clawpipe.cli.main", "run", "--config", CONFIG, "-o", f"seed={seed}", "--json"]
        env = environment(way, CLAWPIPE_HOME=home)
        done = subprocess.run(command, cwd=ROOT, env=env, stdout=subprocess.PIPE)
    if done.returncode:
        raise SystemExit(f"night of seed {seed}, {way}: exit code {done.returncode}")
    status = json.loads(done.stdout)
    updates = [update for step in status["steps"] if step["name"].endswith("/train") for update in step["details"]["updates"]]
    base, candidate = (status["heldout"][role]["success"] for role in ("base", "candidate"))
    return {
        "cpu": way,
        "threads": "as shipped",
        "seed": seed,
        "base": round(base, 3),
        "candidate": round(candidate, 3),
        "gain": round(candidate - base, 3),
        "verdict": status["verdict"],
        "largest_ratio": round(max(update["ratio_max"] for update in updates), 2),
        "approx_kl": round(max(update["approx_kl"] for update in updates), 3),
        "seconds": round(status["seconds"], 1),
    }


def show(row: JsonObject, stream: Any) -> None:
    print("  ".join(f"{row[name]!s:>{max(len(name), 8)}}" for name in _COLUMNS), file=stream, flush=True)


def summary(rows: list[JsonObject]) -> JsonObject:
    return {
        "rows": len(rows),
        "promoted": sum(row["verdict"] == "PROMOTE" for row in rows),
        "smallest_gain": min(row["gain"] for row in rows),
        "lowest_candidate": min(row["candidate"] for row in rows),
        "largest_ratio": max(row["largest_ratio"] for row in rows),
        "largest_approx_kl": max(row["approx_kl"] for row in rows),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seeds", type=int, default=20, help="how many, from 0")
    parser.add_argument("--cpu", choices=WAYS, nargs="+", default=list(WAYS))
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--nights", type=int, default=0, help="whole nights besides, one seed each, the CPU's ways in turn")
    parser.add_argument("--json", action="store_true", help="print JSON; the table goes to stderr")
    arguments = parser.parse_args()
    stream = sys.stderr if arguments.json else sys.stdout
    show({name: name for name in _COLUMNS}, stream)
    tables: dict[str, list[JsonObject]] = {"trainings": [], "nights": []}
    for kind, row in rows_of(arguments):
        tables[kind].append(row)
        show(row, stream)
    found = {"summary": {kind: summary(rows) for kind, rows in tables.items() if rows}}
    text = json.dumps({"conditions": conditions() | {"config": CONFIG}} | found | tables, indent=2)
    print(text if arguments.json else json.dumps(found, indent=2))
    rows = tables["trainings"] + tables["nights"]
    return 0 if all(row["verdict"] == "PROMOTE" and row["gain"] >= GAIN for row in rows) else 1


def rows_of(arguments: argparse.Namespace) -> Iterator[tuple[str, JsonObject]]:
    for way in arguments.cpu:
        for threads in arguments.threads:
            for row in trainings(way, threads, list(range(arguments.seeds))):
                yield "trainings", row
    for seed in range(arguments.nights):
        yield "nights", night(seed, arguments.cpu[seed % len(arguments.cpu)])


if __name__ == "__main__":
    sys.exit(main())
