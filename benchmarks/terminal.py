"""Does a small model learn to work in a shell? Held-out success by family and arm, on several seeds.

    python benchmarks/terminal.py --out benchmarks/terminal.jsonl             # every night that the file has not
    python benchmarks/terminal.py --out benchmarks/terminal.jsonl --table     # the table of what is there

Claim: on each seed the mean over the trained families is at least 0.5 in the arm `both`, and at least 8 of them are above 0.3.
The arms: `none`, rollouts without demonstrations, the control, which cannot begin where no rollout succeeds; `shown`,
demonstrations and successes, imitated; `both`, demonstrations first and then what rollouts teach (grpo). Two families are never
trained on, and are reported beside the others.

Each night is one line of JSON, written when it ends, with the digest of the source that it ran: a run that was stopped goes on with
the night that is missing, and a night that was killed is finished in its home. Seconds are from a shared machine and say little.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.core.store.artifacts import Store
from clawpipe.core.store.datasets import dataset_ref, read_dataset
from clawpipe.core.store.home import Home
from clawpipe.play.environments.discovery import source_digest

ROOT = Path(__file__).parents[1]
CONFIG = "configs/terminal.yaml"
UNTRAINED = ("sort-lines", "make-link")  # as in the config
ARMS = {
    "none": ("curation.demonstrations.share=0",),
    "shown": ("train.method=sft",),
    "both": (),
}
MEAN, ABOVE, FAMILIES = 0.5, 0.3, 8


def night(arm: str, seed: int, homes: Path, options: Sequence[str]) -> JsonObject:
    """Run a night, or what is left of it, in a home of its own; return its line."""
    settings = (*ARMS[arm], f"seed={seed}", f"environment.seed={seed}", f"night={arm}-{seed}", *options)
    words = [word for setting in settings for word in ("-o", setting)]
    command = [sys.executable, "-m", "clawpipe", "run", "--config", CONFIG, *words, "--json"]
    env = os.environ | {"CLAWPIPE_HOME": str(homes / f"{arm}-{seed}"), "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=ROOT, env=env, stdout=subprocess.PIPE, text=True)
    line: JsonObject = {"arm": arm, "seed": seed, "options": list(options), "source": source_digest("terminal")}
    if done.returncode not in (0, 1):
        return line | {"code": done.returncode, "ended": json.loads(done.stdout or "{}").get("what", "nothing said")}
    return line | figures(json.loads(done.stdout), homes / f"{arm}-{seed}")


def figures(status: JsonObject, home: Path) -> JsonObject:
    """Return what a night's line says of its status, and the held-out success of each family."""
    steps = {step["name"]: step for step in status["steps"]}
    store = Store(Home(home).store)
    heldout = {role: _by_family(store, steps[f"evaluate/{role}"]) for role in ("base", "candidate") if f"evaluate/{role}" in steps}
    seconds = {name: round(step["seconds"]) for name, step in steps.items()}
    return {"code": 0, "verdict": status["verdict"], "heldout": heldout, "seconds": seconds}


def _by_family(store: Store, step: JsonObject) -> dict[str, float]:
    made, found = step["artifacts"]["output"], defaultdict[str, list[bool]](list)
    for row in read_dataset(store, dataset_ref(store, made["name"], made["digest"]), ["slice", "success"]).to_pylist():
        found[row["slice"]].append(bool(row["success"]))
    return {family: sum(told) / len(told) for family, told in sorted(found.items())}


def summary(families: dict[str, float]) -> JsonObject:
    """Return figures over families."""
    trained = [share for name, share in families.items() if name not in UNTRAINED]
    apart = {name: families[name] for name in UNTRAINED if name in families}
    return {"mean": sum(trained) / len(trained), "above": sum(share > ABOVE for share in trained), "untrained": apart}


def read(out: Path) -> list[JsonObject]:
    return [json.loads(line) for line in out.read_text().splitlines()] if out.exists() else []


def missing(lines: Sequence[JsonObject], arms: Sequence[str], seeds: Sequence[int]) -> Iterator[tuple[str, int]]:
    """Yield the nights that no line has, seed by seed, so that a part of the table is a table."""
    known = {(line["arm"], line["seed"]) for line in lines if line["code"] == 0}
    yield from ((arm, seed) for seed, arm in product(seeds, arms) if (arm, seed) not in known)


def table(lines: Sequence[JsonObject]) -> str:
    heads = ("arm", "seed", "base", "mean of trained families", "families above 0.3", "never trained on", "verdict")
    rows = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for line in sorted(lines, key=lambda line: (line["arm"], line["seed"])):
        if line["code"] == 0:
            base, told = (summary(line["heldout"][role]) for role in ("base", "candidate"))
            apart = ", ".join(f"{name} {share:.2f}" for name, share in told["untrained"].items())
            cells = (line["arm"], line["seed"], f"{base['mean']:.2f}", f"{told['mean']:.2f}", told["above"], apart, line["verdict"])
            rows.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(rows)


def holds(lines: Sequence[JsonObject], seeds: Sequence[int]) -> bool:
    """Whether the claim holds on each of the seeds."""
    both = {line["seed"]: summary(line["heldout"]["candidate"]) for line in lines if line["arm"] == "both" and line["code"] == 0}
    return all(seed in both and both[seed]["mean"] >= MEAN and both[seed]["above"] >= FAMILIES for seed in seeds)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="JSON Lines, one a night")
    parser.add_argument("--homes", type=Path, default=Path(".benchmark-homes"), help="where the nights' homes lie")
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--arms", default="both,shown,none")
    parser.add_argument("--table", action="store_true", help="run nothing, print what is there")
    parser.add_argument("-o", dest="options", action="append", default=[], help="a setting for every night, to try the script")
    wanted = parser.parse_args()
    seeds = [int(seed) for seed in wanted.seeds.split(",")]
    if not wanted.table:
        for arm, seed in list(missing(read(wanted.out), wanted.arms.split(","), seeds)):
            line = night(arm, seed, wanted.homes, wanted.options)
            with wanted.out.open("a") as file:
                file.write(json.dumps(line) + "\n")
    lines = read(wanted.out)
    print(table(lines))
    return 0 if holds(lines, seeds) else 1


if __name__ == "__main__":
    sys.exit(main())
