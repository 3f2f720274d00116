"""What does each method reach on the demo's task, on every seed? Runs nights one by one, and prints a table of those that ended.

    python benchmarks/methods.py --nights benchmarks/methods.jsonl
    python benchmarks/methods.py --nights benchmarks/methods.jsonl dpo kto --seeds 0 1 2 --demonstrations off
    python benchmarks/methods.py --nights benchmarks/methods.jsonl --table --json

Without more words: all methods on five seeds, demonstrations off and on. Claims: each night is promoted, and no candidate loses a
slice by the gate's own test (a loss beyond the margin, p < alpha / number of slices).

Each night that ends appends one line, with the digest of the source that made it. The same command goes on with the nights that
this source has not made, and a night that was cut goes on at its last step, in its home below `--homes`. The nights of one seed
share a home and a draw: the first round's rollouts are made once, and all answer the same held-out items. A night's minutes are
those of all its steps, in whichever night they ran. Intervals are Wilson's, 95 %.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from demo_seeds import conditions, slices

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.core.store.digests import sha256_file, sha256_json
from clawpipe.core.store.source import code_digest

METHODS = ("sft", "grpo", "ppo", "dpo", "kto", "opd", "combine")
ARMS = {
    "off": [],
    "on": ["curation.demonstrations.share=0.5"],
}  # demonstrations of items that no rollout solved, as rows to imitate
ROOT = Path(__file__).parents[1]


class Night(NamedTuple):
    """A night of the table."""

    method: str
    seed: int
    demonstrations: str

    @property
    def config(self) -> Path:
        return ROOT / "configs" / "methods" / f"{self.method}.yaml"

    def settings(self, options: list[str]) -> list[str]:
        name = f"{self.method}-{self.demonstrations}"
        own = f"registry.model_name={name}"  # with a champion of its own: each night is judged against the base
        return [f"seed={self.seed}", f"night={name}", "draw=methods", own, *ARMS[self.demonstrations], *options]


def source(night: Night, options: list[str]) -> str:
    """Return the digest of all that decides a night: the code, its config, and the settings on top of it."""
    return sha256_json([code_digest("flows.nightly"), sha256_file(night.config), night.settings(options)])[:16]


def read(file: Path) -> list[JsonObject]:
    """Return the nights that ended; a last line that was cut is no night."""
    lines = file.read_text().split("\n")[:-1] if file.exists() else []
    return [json.loads(line) for line in lines]


def append(file: Path, row: JsonObject) -> None:
    """Append a night's line, after removing what a kill may have left of one."""
    kept = file.read_bytes() if file.exists() else b""
    with file.open("r+b" if file.exists() else "wb") as out:
        out.truncate(kept.rfind(b"\n") + 1)
        out.seek(0, os.SEEK_END)
        out.write(json.dumps(row).encode() + b"\n")
        out.flush()
        os.fsync(out.fileno())


def run(night: Night, home: Path, options: list[str]) -> JsonObject:
    """Run a night to its end and return its status."""
    command = [sys.executable, "-m", "clawpipe.cli.main", "run", "--config", str(night.config), "--json"]
    command += [part for setting in night.settings(options) for part in ("-o", setting)]
    done = subprocess.run(command, cwd=ROOT, env=os.environ | {"CLAWPIPE_HOME": str(home)}, stdout=subprocess.PIPE)
    if done.returncode:
        raise SystemExit(f"{night}: exit code {done.returncode}; the same command goes on here")
    return json.loads(done.stdout)


def row_of(night: Night, status: JsonObject, spent: dict[str, float]) -> JsonObject:
    """Return a night's line. `spent` are the seconds of steps of this home, by key, as they ran."""
    heldout, steps = status["heldout"], status["steps"]
    trained = [step["details"]["updates"] for step in steps if step["name"].endswith("/train")]
    updates: list[JsonObject] = [update for updates in trained for update in updates]
    return {
        **night._asdict(),
        "base": heldout["base"],
        "candidate": heldout["candidate"],
        "gain": round(heldout["candidate"]["success"] - heldout["base"]["success"], 4),
        "verdict": status["verdict"],
        **slices(next(step["details"] for step in steps if step["name"] == "gate")),
        "minutes": round(sum(spent.get(step["key"]) or step["seconds"] for step in steps) / 60, 1),
        "updates": len(updates),
        "trained_tokens": sum(int(update["trained_tokens"]) for update in updates),
    }


def nights_of(home: Path, wanted: Iterable[Night], file: Path, options: list[str]) -> None:
    """Run the nights of one home that this source has not made, and append a line for each."""
    spent = seconds_of(home)
    for night in wanted:
        digest = source(night, options)
        if any(row["source"] == digest for row in read(file)):
            continue
        status = run(night, home, options)
        spent |= {step["key"]: step["seconds"] for step in status["steps"] if step["state"] == "ran"}
        row = row_of(night, status, spent) | {"source": digest, "overrides": options, "conditions": conditions()}
        append(file, row)
        print(json.dumps(row), file=sys.stderr, flush=True)


def seconds_of(home: Path) -> dict[str, float]:
    """Return the seconds of the steps that earlier nights of a home ran, by key."""
    statuses = [json.loads(file.read_bytes()) for file in sorted(home.glob("runs/*/status.json"))]
    return {step["key"]: step["seconds"] for status in statuses for step in status["steps"] if step["state"] == "ran"}


def table(rows: list[JsonObject]) -> str:
    """Return the table in GitHub Markdown."""
    head = ("method", "demonstrations", "seed", "base", "candidate", "gain", "verdict", "slices lost", "minutes", "trained tokens")
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    for row in rows:
        cells = [row["method"], row["demonstrations"], row["seed"], figure(row["base"]), figure(row["candidate"])]
        cells += [f"{row['gain']:+.3f}", row["verdict"], ", ".join(row["lost"]) or "none", row["minutes"]]
        lines.append(f"| {' | '.join(map(str, cells))} | {row['trained_tokens']:,} |")
    return "\n".join(lines)


def figure(success: dict[str, float]) -> str:
    return f"{success['success']:.3f} ({success['low']:.3f}-{success['high']:.3f})"


def summary(rows: list[JsonObject]) -> Iterator[JsonObject]:
    """Yield, for each method and arm, how many nights ended, were promoted and lost a slice, and the mean and worst success."""
    groups: dict[tuple[str, str], list[JsonObject]] = defaultdict(list)
    for row in rows:
        groups[row["method"], row["demonstrations"]].append(row)
    for (method, arm), members in groups.items():
        reached = [row["candidate"]["success"] for row in members]
        yield {
            "method": method,
            "demonstrations": arm,
            "nights": len(members),
            "promoted": sum(row["verdict"] == "PROMOTE" for row in members),
            "lost_a_slice": sum(bool(row["lost"]) for row in members),
            "mean": round(sum(reached) / len(reached), 4),
            "worst": min(reached),
            "sources": sorted({row["source"] for row in members}),
        }


def newest(rows: list[JsonObject], wanted: Iterable[Night]) -> list[JsonObject]:
    """Return the last line of each wanted night that ended, in the order of the table."""
    last = {Night(row["method"], row["seed"], row["demonstrations"]): row for row in rows}
    return [last[night] for night in wanted if night in last]


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "methods", nargs="*", default=list(METHODS), metavar="METHOD", help=f"of {', '.join(METHODS)}; all by default"
    )
    parser.add_argument("--nights", type=Path, required=True, help="file with a line for each night that ended")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument("--demonstrations", nargs="+", choices=list(ARMS), default=list(ARMS))
    parser.add_argument("--parallel", type=int, default=1, help="seeds at a time")
    parser.add_argument("-o", "--override", action="append", default=[], help="setting of every night, e.g. runtime.workers=1")
    parser.add_argument("--homes", type=Path, help="directory of the homes, one a seed; default: beside the file of nights")
    parser.add_argument("--table", action="store_true", help="run nothing, print the table of the nights that ended")
    parser.add_argument("--json", action="store_true", help="print nights and their summary as JSON")
    return parser.parse_args()


def main() -> int:
    given = options()
    chosen = [method for method in METHODS if method in given.methods]
    wanted = [Night(method, seed, arm) for method in chosen for seed in given.seeds for arm in given.demonstrations]
    homes = given.homes or given.nights.with_suffix(".homes")
    if not given.table:
        with ThreadPoolExecutor(given.parallel) as pool:
            of = {seed: [night for night in wanted if night.seed == seed] for seed in given.seeds}
            list(pool.map(lambda seed: nights_of(homes / f"seed-{seed}", of[seed], given.nights, given.override), of))
    rows = newest(read(given.nights), wanted)
    print(json.dumps({"nights": rows, "summary": list(summary(rows))}, indent=2) if given.json else table(rows))
    return 0 if len(rows) == len(wanted) and all(row["verdict"] == "PROMOTE" and not row["lost"] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
