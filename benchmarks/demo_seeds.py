"""Does the demo night learn? Runs one night per seed, each in a separate home; prints and records the gate's figures.

    python benchmarks/demo_seeds.py --out benchmarks/demo_seeds.json 0 1 2
    python benchmarks/demo_seeds.py --out benchmarks/demo_seeds.json 3 -o curation.demonstrations.share=0.2

Claims: on each seed the candidate gains at least 0.3 (absolute) on held-out items over the base, is promoted, and loses no slice by
the gate's own test (a loss beyond the margin, p < alpha / number of slices). Nights of other seeds and settings that the file holds
stay in it. Times are from a shared machine and say little; the ratio of generation to training is from one run.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.core.config.gate import Gate

CONFIG = "configs/demo.yaml"
GAIN = 0.3


def night(seed: int, options: Sequence[str]) -> JsonObject:
    """Run a night in a fresh home and return its status."""
    with tempfile.TemporaryDirectory() as home:
        command = [sys.executable, "-m", "clawpipe.cli.main", "run", "--config", CONFIG, "-o", f"seed={seed}", "--json"]
        command += [word for option in options for word in ("-o", option)]
        done = subprocess.run(command, env=os.environ | {"CLAWPIPE_HOME": home}, stdout=subprocess.PIPE, check=True)
    return json.loads(done.stdout)


def row(seed: int, options: Sequence[str], status: JsonObject) -> JsonObject:
    heldout = status["heldout"]
    spent = {
        kind: sum(step["seconds"] for step in status["steps"] if step["name"].endswith(kind)) for kind in ("rollouts", "train")
    }
    return {
        "seed": seed,
        **({"options": [*options]} if options else {}),
        "base": heldout["base"],
        "candidate": heldout["candidate"],
        "gain": round(heldout["candidate"]["success"] - heldout["base"]["success"], 4),
        "verdict": status["verdict"],
        "reasons": status["reasons"],
        **slices(next(step["details"] for step in status["steps"] if step["name"] == "gate")),
        "model_digest": status["model"]["digest"],
        "seconds": status["seconds"],
        "generation_over_training": round(spent["rollouts"] / spent["train"], 2),
    }


def slices(verdict: JsonObject) -> JsonObject:
    """Return each slice's change of success, and the slices that were lost by the gate's test, corrected for their number."""
    found = verdict["slices"]
    lost = [part["slice"] for part in found if part["p_regression"] < Gate().alpha / len(found)]
    return {"slices": {part["slice"]: round(part["effect"], 4) for part in found}, "lost": lost}


def holds(night: JsonObject) -> bool:
    """Say whether a night's claims hold."""
    return night["gain"] >= GAIN and night["verdict"] == "PROMOTE" and not night["lost"]


def conditions() -> JsonObject:
    libraries = ("torch", "transformers", "peft", "prefect", "duckdb", "pyarrow", "mlflow")
    return {
        "config": CONFIG,
        "python": platform.python_version(),
        "machine": platform.machine(),
        "cores": os.cpu_count(),
        "accelerator": None,
        "libraries": {name: version(name) for name in libraries},
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("seeds", type=int, nargs="*", default=[0, 1, 2])
    parser.add_argument("-o", "--option", action="append", default=[], help="a setting of the nights, KEY=VALUE")
    parser.add_argument("--out", type=Path, help="JSON file for the results")
    arguments = parser.parse_args()
    kept = json.loads(arguments.out.read_text())["nights"] if arguments.out and arguments.out.exists() else []
    nights, made = {_place(night["seed"], night.get("options", ())): night for night in kept}, list[JsonObject]()
    for seed in arguments.seeds:
        made.append(row(seed, arguments.option, night(seed, arguments.option)))
        print(json.dumps(made[-1], indent=2), flush=True)
        nights[_place(seed, arguments.option)] = made[-1]
        if arguments.out:
            results = {"conditions": conditions(), "nights": [nights[place] for place in sorted(nights)]}
            arguments.out.write_text(json.dumps(results, indent=2) + "\n")
    return 0 if all(map(holds, made)) else 1


def _place(seed: int, options: Sequence[str]) -> tuple[tuple[str, ...], int]:
    return tuple(sorted(options)), seed


if __name__ == "__main__":
    sys.exit(main())
