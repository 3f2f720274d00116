"""How do the data steps of a night grow with the number of trajectories? Adds the curve to data_plane_rows.json.

    python benchmarks/data_plane_rows.py --rows 10000 30000 100000 300000 --out benchmarks/data_plane_rows.json

Each step runs in a process of its own on short trajectories (data_plane_data.py, about 1 kB of payload each) and their scores; it
reports CPU seconds and the peak of resident memory. The line through the two largest sizes is drawn on to ten million rows: that is
a guess, and too high where memory stops growing later (files have 8,192 rows, DuckDB has a limit). Sizes that the file has already
stay. The peak of one and the same reading differs by some 40 MB from run to run, so sizes below 100,000 rows say little. Curation
of ten million rows itself is measured by `data_plane.py --rows`.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import pyarrow as pa
from data_plane_job import Done, measure
from data_plane_steps import STEPS, Rows, prepared

from clawpipe.core.basics.json_types import JsonObject

FAR = 10_000_000
ENOUGH = 100_000  # rows: the peak of one and the same reading differs by 40 MB from run to run


def main() -> int:
    arguments = _parser().parse_args()
    if arguments.measure:
        pa.set_cpu_count(2)
        rows = Rows.model_validate_json(sys.stdin.read())
        print(json.dumps(measure(lambda given: _done(STEPS[arguments.measure](given)), rows), default=str))
        return 0
    known: JsonObject = json.loads(arguments.out.read_text()) if arguments.out and arguments.out.exists() else {}
    found = {name: dict[str, JsonObject](known.get("steps", {}).get(name, {}).get("measured", {})) for name in STEPS}
    asked = arguments.only or list(STEPS)
    for rows in arguments.rows:
        with tempfile.TemporaryDirectory(dir=arguments.work) as work:
            made = prepared(Path(work), rows, asked)
            for name in asked:
                found[name][str(made.trajectories.rows)] = _run(name, made)
                known |= {"steps": {step: _curve(by_rows) for step, by_rows in found.items() if by_rows}}
                if arguments.out:  # a step at a time: a run over many rows takes hours
                    arguments.out.write_text(json.dumps(known, indent=2) + "\n")
    print(json.dumps(known["steps"], indent=2))
    return 0


def _done(result: object) -> Done:
    return Done(lambda: {"result": str(result)[:200]})


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, nargs="+", default=[10_000, 30_000, 100_000, 300_000], help="trajectories, rising")
    parser.add_argument("--only", nargs="+", choices=list(STEPS), help="steps")
    parser.add_argument("--work", type=Path, help="where temporary directories for data are made")
    parser.add_argument("--out", type=Path, help="JSON file whose `steps` are added to")
    parser.add_argument("--measure", choices=list(STEPS), help=argparse.SUPPRESS)
    return parser


def _run(name: str, rows: Rows) -> JsonObject:
    command = [sys.executable, __file__, "--measure", name]
    home = {"CLAWPIPE_HOME": str(rows.store.parent)}  # where steps look for the store
    done = subprocess.run(command, input=rows.model_dump_json(), stdout=subprocess.PIPE, text=True, env=os.environ | home)
    if done.returncode:
        sys.exit(f"{name} failed")
    figures = json.loads(done.stdout.splitlines()[-1])
    print(
        f"{name}: CPU {figures['cpu_seconds']:.2f} s, {figures['peak_mb']:.0f} MB {figures['result']}", file=sys.stderr, flush=True
    )
    return {"cpu_seconds": round(figures["cpu_seconds"], 3), "peak_mb": round(figures["peak_mb"], 1)}


def _curve(by_rows: Mapping[str, JsonObject]) -> JsonObject:
    sizes = sorted(by_rows, key=int)
    far = {figure: _at_far(sizes, [by_rows[size][figure] for size in sizes]) for figure in ("cpu_seconds", "peak_mb")}
    return {"measured": {size: by_rows[size] for size in sizes}, "at_ten_million": far}


def _at_far(sizes: Sequence[str], values: Sequence[float]) -> float | None:
    """Return where the line through the two largest sizes comes to; None below ENOUGH rows, where noise would decide it."""
    if len(sizes) < 2 or int(sizes[-1]) < ENOUGH:
        return None
    (one, other), (less, more) = map(int, sizes[-2:]), values[-2:]
    return round(max(more + (more - less) / (other - one) * (FAR - other), more), 1)


if __name__ == "__main__":
    sys.exit(main())
