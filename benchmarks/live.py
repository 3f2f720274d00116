"""Does a model get better from conversations alone? The live demo on several seeds, beside arms that must not, or could best.

    python benchmarks/live.py --json --log live.jsonl --out benchmarks/live.json 0 1 2
    python benchmarks/live.py --tiny --json --log live_tiny.jsonl --out benchmarks/live_tiny.json 0

Arms: `as is`; `permuted`, in which what users say is about somebody else's answer; `no judge`, in which nights imitate all that was
said; `verifier`, in which users are never wrong and never silent, in words that the judge always reads: the ceiling. What users say
comes from the half of `reactions/` that the rules' author has not read, and from paraphrase.

The headline is the success on held-out questions that nobody asked, greedy (with --tiny: sampled), of the model in service after
the last night against the base, and the gate's verdict on it. Claims, for each seed: as is PROMOTE, permuted not, and no failed
request.

A line of the log is one arm and seed; those that are in it are not run again, and an interrupted one goes on in its home below
--homes.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
from importlib.metadata import version
from pathlib import Path
from typing import get_args

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.core.config.load import shipped_file
from clawpipe.core.store.home import Home
from clawpipe.play.environments.letters import LettersEnvironment
from clawpipe.play.environments.shop import ShopEnvironment
from clawpipe.start.simulation.hours import LiveDemo, Plan
from clawpipe.start.simulation.words import Arm

ARMS: tuple[Arm, ...] = get_args(Arm)
TINY = Path(__file__).with_name("live_tiny.yaml")
SHIPPED = Path("configs/live.yaml")


def plan_of(seed: int, arm: Arm, tiny: bool) -> Plan:
    """Return what an arm runs."""
    if tiny:
        return Plan(TINY, seed, "random", most_tokens=2, arm=arm)
    return Plan(shipped_file(str(SHIPPED)) or SHIPPED, seed, arm=arm)


def live(home: Path, plan: Plan, tiny: bool) -> JsonObject:
    """Run an arm, or go on with it, and return its line of the log."""
    environment = LettersEnvironment() if tiny else ShopEnvironment()
    demo = LiveDemo(Home(home), plan, lambda line: print(f"  {line}", file=sys.stderr, flush=True), environment)
    report = demo.run().model_dump(mode="json", exclude={"plot"})
    return {"arm": plan.arm, "conditions": conditions(), **report}


def summary(lines: list[JsonObject]) -> JsonObject:
    """Return the headlines by arm and seed, and the claims that do not hold."""
    arms = {arm: {str(line["seed"]): line["headline"] for line in lines if line["arm"] == arm} for arm in ARMS}
    return {
        "arms": {arm: found for arm, found in arms.items() if found},
        "failed_requests": sum(line["failed_requests"] for line in lines),
        "minutes": {arm: max(line["minutes"] for line in lines if line["arm"] == arm) for arm, found in arms.items() if found},
        "missed_claims": missed(lines),
    }


def missed(lines: list[JsonObject]) -> list[str]:
    """Return the claims that do not hold."""
    found = [f"seed {line['seed']}, {line['arm']}: {line['failed_requests']} requests failed" for line in lines]
    found = [text for text, line in zip(found, lines, strict=True) if line["failed_requests"]]
    for line in lines:
        promoted = line["headline"]["decision"] == "PROMOTE"
        if (line["arm"] == "as is" and not promoted) or (line["arm"] == "permuted" and promoted):
            found.append(f"seed {line['seed']}, {line['arm']}: {line['headline']['decision']}")
    return found


def conditions() -> JsonObject:
    libraries = {name: version(name) for name in ("torch", "transformers", "peft", "prefect")}
    return {"python": platform.python_version(), "cores": os.cpu_count(), "load": os.getloadavg()[0], "libraries": libraries}


def read(log: Path) -> list[JsonObject]:
    return [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()] if log.exists() else []


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("seeds", type=int, nargs="*", default=[0, 1, 2])
    parser.add_argument("--arms", nargs="+", choices=ARMS, default=list(ARMS))
    parser.add_argument("--tiny", action="store_true", help="a model of random weights that learns to answer in letters")
    parser.add_argument(
        "--log", type=Path, default=Path("live.jsonl"), help="one line an arm and seed; those in it are not run again"
    )
    parser.add_argument("--homes", type=Path, default=Path("live-homes"), help="directory of the arms' homes")
    parser.add_argument("--json", action="store_true", help="print the headlines of all arms as one JSON object")
    parser.add_argument("--out", type=Path, help="JSON file for headlines and reports")
    given = parser.parse_args()
    for seed in given.seeds:
        for arm in given.arms:
            if any((line["arm"], line["seed"]) == (arm, seed) for line in read(given.log)):
                continue
            print(f"seed {seed}, {arm}", file=sys.stderr, flush=True)
            line = live(given.homes / f"{arm.replace(' ', '-')}-{seed}", plan_of(seed, arm, given.tiny), given.tiny)
            with given.log.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")
    lines = read(given.log)
    figures = summary(lines)
    if given.out:
        given.out.write_text(json.dumps({**figures, "runs": lines}, indent=1) + "\n")
    print(json.dumps(figures, indent=1) if given.json else "\n".join(f"{name}: {value}" for name, value in figures.items()))
    return 1 if figures["missed_claims"] else 0


if __name__ == "__main__":
    sys.exit(main())
