"""Does a model get better from conversations alone? Runs `clawpipe demo live` once a seed, each in a fresh home.

    python benchmarks/live.py --json --out benchmarks/live.json 0 1 2

Claims: on each seed the last hour's conversations succeed at least 0.2 (absolute) more often than the first hour's, by the
environment's own verifier, which no night was given; no request failed; and it takes at most 30 minutes on two idle cores.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

from clawpipe.json_types import JsonObject

GAIN, MINUTES = 0.2, 30.0


def live(seed: int) -> JsonObject:
    """Run the demo in a fresh home and return its report."""
    with tempfile.TemporaryDirectory() as home:
        command = [sys.executable, "-m", "clawpipe", "demo", "live", "--seed", str(seed), "--json"]
        done = subprocess.run(command, env=os.environ | {"CLAWPIPE_HOME": home}, stdout=subprocess.PIPE, check=True)
    return json.loads(done.stdout)


def summary(runs: list[JsonObject]) -> JsonObject:
    """Return the figures that the claims are about."""
    return {
        "gain": {str(run["seed"]): run["gain"] for run in runs},
        "failed_requests": sum(run["failed_requests"] for run in runs),
        "minutes": max(run["minutes"] for run in runs),
    }


def holds(figures: JsonObject) -> bool:
    return min(figures["gain"].values()) >= GAIN and figures["failed_requests"] == 0 and figures["minutes"] <= MINUTES


def conditions() -> JsonObject:
    libraries = {name: version(name) for name in ("torch", "transformers", "peft", "prefect")}
    load = round(os.getloadavg()[0], 2)
    return {"python": platform.python_version(), "cores": os.cpu_count(), "load_before": load, "libraries": libraries}


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("seeds", type=int, nargs="*", default=[0, 1, 2])
    parser.add_argument("--json", action="store_true", help="print the figures of the claims as one JSON object")
    parser.add_argument("--out", type=Path, help="JSON file for figures, conditions and reports")
    arguments = parser.parse_args()
    around, runs = conditions(), list[JsonObject]()
    for seed in arguments.seeds:
        runs.append({name: value for name, value in live(seed).items() if name != "plot"})
        if arguments.out:
            arguments.out.write_text(json.dumps({**summary(runs), "conditions": around, "runs": runs}, indent=2) + "\n")
        print(f"seed {seed}: gain {runs[-1]['gain']:+.3f}, {runs[-1]['minutes']:.1f} minutes", file=sys.stderr, flush=True)
    figures = summary(runs)
    print(json.dumps(figures) if arguments.json else "\n".join(f"{name}: {value}" for name, value in figures.items()))
    return 0 if holds(figures) else 1


if __name__ == "__main__":
    sys.exit(main())
