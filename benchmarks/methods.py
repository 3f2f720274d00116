"""What does each method reach on the demo's task? Runs one night per method and seed; prints a table and records it.

    python benchmarks/methods.py --out benchmarks/methods.json --seeds 0 1 2

Claim: each method improves on the base's held-out success. By how much differs from seed to seed, and the gate rejects a candidate
that has forgotten one kind of task while it learnt the others. The nights of one seed share a home, so that common work (the first
round's rollouts) is done once, and each is judged by items that none before it has seen; the minutes of a night are those of all
its steps, in whichever night they ran. Intervals are Wilson's, 95 %. An existing `--out` keeps its rows of other methods and seeds,
so that the table can be made over several days.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from demo_seeds import conditions

from clawpipe.json_types import JsonObject

METHODS = ("sft", "grpo", "ppo", "dpo", "kto", "opd", "combine")


def nights(seed: int, methods: list[str], home: Path, options: list[str]) -> list[JsonObject]:
    """Return one row per method."""
    spent: dict[str, float] = {}
    rows = []
    for method in methods:
        status = night(method, seed, home, options)
        spent |= {step["key"]: step["seconds"] for step in status["steps"] if step["state"] == "ran"}
        rows.append(row(method, seed, status, spent))
        print(json.dumps(rows[-1]), file=sys.stderr, flush=True)
    return rows


def night(method: str, seed: int, home: Path, options: list[str]) -> JsonObject:
    config = f"configs/methods/{method}.yaml"
    command = [sys.executable, "-m", "clawpipe.cli.main", "run", "--config", config, "-o", f"seed={seed}", "--json"]
    command += [part for option in options for part in ("-o", option)]
    done = subprocess.run(command, env=os.environ | {"CLAWPIPE_HOME": str(home)}, stdout=subprocess.PIPE)
    if done.returncode:
        raise SystemExit(f"{method}, seed {seed}: exit code {done.returncode}")
    return json.loads(done.stdout)


def row(method: str, seed: int, status: JsonObject, spent: dict[str, float]) -> JsonObject:
    heldout, steps = status["heldout"], status["steps"]
    trained = [step["details"]["updates"] for step in steps if step["name"].endswith("/train")]
    updates: list[JsonObject] = [update for updates in trained for update in updates]
    return {
        "method": method,
        "seed": seed,
        "base": heldout["base"],
        "candidate": heldout["candidate"],
        "gain": round(heldout["candidate"]["success"] - heldout["base"]["success"], 4),
        "verdict": status["verdict"],
        "minutes": round(sum(spent.get(step["key"]) or step["seconds"] for step in steps) / 60, 1),
        "updates": len(updates),
        "trained_tokens": sum(int(update["trained_tokens"]) for update in updates),
    }


def others(file: Path, rows: list[JsonObject]) -> list[JsonObject]:
    """Return the rows in an earlier file with methods and seeds that are not among `rows`."""
    made = {(entry["method"], entry["seed"]) for entry in rows}
    earlier = json.loads(file.read_text())["nights"] if file.exists() else []
    return [entry for entry in earlier if (entry["method"], entry["seed"]) not in made]


def table(rows: list[JsonObject]) -> str:
    """Return the table in GitHub Markdown."""
    lines = [
        "| method | seed | base | candidate | gain | verdict | minutes | trained tokens |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for entry in sorted(rows, key=lambda entry: (METHODS.index(entry["method"]), entry["seed"])):
        base, candidate = (figure(entry[role]) for role in ("base", "candidate"))
        cells = (base, candidate, f"{entry['gain']:+.3f}", entry["verdict"], entry["minutes"], f"{entry['trained_tokens']:,}")
        lines.append(f"| {entry['method']} | {entry['seed']} | {' | '.join(map(str, cells))} |")
    return "\n".join(lines)


def figure(success: dict[str, float]) -> str:
    return f"{success['success']:.3f} ({success['low']:.3f}-{success['high']:.3f})"


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("methods", nargs="*", default=list(METHODS))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--parallel", type=int, default=1, help="seeds at a time")
    parser.add_argument("-o", "--override", action="append", default=[], help="setting of every night, e.g. runtime.workers=1")
    parser.add_argument("--homes", type=Path, help="directory of the homes, kept; default: a temporary one")
    parser.add_argument("--out", type=Path, help="JSON file for the results")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary, ThreadPoolExecutor(arguments.parallel) as pool:
        homes = arguments.homes or Path(temporary)
        runs = pool.map(lambda seed: nights(seed, arguments.methods, homes / f"seed-{seed}", arguments.override), arguments.seeds)
        rows = [entry for run in runs for entry in run]
    if arguments.out:
        settings = conditions() | {"config": "configs/methods", "overrides": arguments.override}
        results = {"conditions": settings, "nights": rows + others(arguments.out, rows)}
        arguments.out.write_text(json.dumps(results, indent=2) + "\n")
    print(table(rows))
    return 0 if all(entry["gain"] > 0 for entry in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
